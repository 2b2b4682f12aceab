// The kernels of ops/norm.h, whose source has the derivation. A block keeps whole rows in registers, so each
// matrix passes memory once: forward 2 elements per element of x, backward 5. A thread has the same columns
// in every row, so it sums its part of the weight's gradient over the block's rows alone.
#include "ops/cuda/kernel_parts.h"

namespace sluice::ops::kernels {
namespace {

// A kernel is built for each power of two of vectors a thread, up to this.
constexpr int kMostVectors = kMostRowAccesses / kThreads;

template <int kWide>
__device__ int64_t column_of(int vector) {
  return (static_cast<int64_t>(vector) * kThreads + threadIdx.x) * kWide;
}

template <typename S, int kWide, int kVectors>
__global__ void rms_norm(const NormForward norm) {
  const int64_t row = blockIdx.x, width = norm.width;
  const S* x = static_cast<const S*>(norm.x) + row * width;
  Floats<kWide> kept[kVectors];
  float squares = 0;
  SLUICE_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const int64_t column = column_of<kWide>(v);
    if (column >= width) continue;
    kept[v] = load<kWide>(x + column);
    SLUICE_UNROLL
    for (int i = 0; i < kWide; ++i) squares += kept[v].at[i] * kept[v].at[i];
  }
  const float r = 1.0F / sqrtf(block_sum(squares) / static_cast<float>(width) + norm.eps);
  if (threadIdx.x == 0) norm.inverse_rms[row] = r;
  SLUICE_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const int64_t column = column_of<kWide>(v);
    if (column >= width) continue;
    const Floats<kWide> w = load<kWide>(static_cast<const S*>(norm.weight) + column);
    SLUICE_UNROLL
    for (int i = 0; i < kWide; ++i) kept[v].at[i] *= r * (w.at[i] + norm.offset);
    store<kWide>(static_cast<S*>(norm.y) + row * width + column, kept[v]);
  }
}

// One row; adds its weight gradient to `sums`.
template <typename S, int kWide, int kVectors>
__device__ void backward_row(const NormBackward& norm, int64_t row, Floats<kWide> (&sums)[kVectors]) {
  const int64_t width = norm.width, begin = row * width;
  const auto* weight = static_cast<const S*>(norm.weight);
  const float r = norm.inverse_rms[row];
  Floats<kWide> g[kVectors], n[kVectors];
  float dot = 0;
  SLUICE_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const int64_t column = column_of<kWide>(v);
    if (column >= width) continue;
    g[v] = load<kWide>(static_cast<const S*>(norm.dy) + begin + column);
    n[v] = load<kWide>(static_cast<const S*>(norm.x) + begin + column);
    const Floats<kWide> w = load<kWide>(weight + column);
    SLUICE_UNROLL
    for (int i = 0; i < kWide; ++i) {
      n[v].at[i] *= r;
      sums[v].at[i] += g[v].at[i] * n[v].at[i];
      g[v].at[i] *= w.at[i] + norm.offset;
      dot += g[v].at[i] * n[v].at[i];
    }
  }
  const float mean = block_sum(dot) / static_cast<float>(width);
  SLUICE_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const int64_t column = column_of<kWide>(v);
    if (column >= width) continue;
    const Floats<kWide> w = load<kWide>(weight + column);
    Floats<kWide> dx{}, y;
    if (norm.residual != nullptr) dx = load<kWide>(static_cast<const S*>(norm.residual) + begin + column);
    SLUICE_UNROLL
    for (int i = 0; i < kWide; ++i) {
      dx.at[i] += (g[v].at[i] - n[v].at[i] * mean) * r;
      y.at[i] = n[v].at[i] * (w.at[i] + norm.offset);
    }
    store<kWide>(static_cast<S*>(norm.dx) + begin + column, dx);
    store<kWide>(static_cast<S*>(norm.y) + begin + column, y);
  }
}

template <typename S, int kWide, int kVectors>
__global__ void rms_norm_backward(const NormBackward norm) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kNormBlockRows;
  const int64_t last = first + kNormBlockRows < norm.rows ? first + kNormBlockRows : norm.rows;
  Floats<kWide> sums[kVectors] = {};
  for (int64_t row = first; row < last; ++row) backward_row<S, kWide, kVectors>(norm, row, sums);
  SLUICE_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const int64_t column = column_of<kWide>(v);
    if (column < norm.width) store<kWide>(norm.weight_sums + blockIdx.x * norm.width + column, sums[v]);
  }
}

// Calls visit.template operator()<kVectors>() with the fewest vectors a thread that hold a row of kWide each.
template <int kWide, int kVectors = 1, typename Visit>
Status visit_vectors(int64_t width, Visit visit) {
  if constexpr (kVectors < kMostVectors) {
    if (width > kVectors * kThreads * kWide) return visit_vectors<kWide, 2 * kVectors>(width, visit);
  }
  return visit.template operator()<kVectors>();
}

}  // namespace

Status launch_rms_norm(Element element, const NormForward& norm, Stream stream) {
  return visit_element(element, [&]<typename S>() {
    if (!can_be_wide<S>(norm.width, {norm.x, norm.weight, norm.y})) {
      return launch(rms_norm<S, 1, kMostVectors>, norm.rows, stream, NormForward(norm));
    }
    return visit_vectors<kWidest<S>>(norm.width, [&]<int kVectors>() {
      return launch(rms_norm<S, kWidest<S>, kVectors>, norm.rows, stream, NormForward(norm));
    });
  });
}

Status launch_rms_norm_backward(Element element, const NormBackward& norm, Stream stream) {
  const int64_t blocks = (norm.rows + kNormBlockRows - 1) / kNormBlockRows;
  return visit_element(element, [&]<typename S>() {
    if (!can_be_wide<S>(norm.width, {norm.dy, norm.x, norm.weight, norm.residual, norm.dx, norm.y})) {
      return launch(rms_norm_backward<S, 1, kMostVectors>, blocks, stream, NormBackward(norm));
    }
    return visit_vectors<kWidest<S>>(norm.width, [&]<int kVectors>() {
      return launch(rms_norm_backward<S, kWidest<S>, kVectors>, blocks, stream, NormBackward(norm));
    });
  });
}

}  // namespace sluice::ops::kernels
