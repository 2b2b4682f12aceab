// The kernels of ops/norm.h, whose source has the derivation. The threads of a row keep it in registers, so
// each matrix passes memory once: forward 2 elements per element of x, backward 5. As many threads serve a
// row as it has accesses, 16 at least: a block of 256 takes up to 16 narrow rows (heads' norms) side by side,
// and grows to 1,024 for wide ones, because threads that keep more take registers for which a multiprocessor
// holds too few of them. A thread has the same columns in every row, so it sums its part of the weight's
// gradient over the block's rows alone.
#include "ops/cuda/kernel_parts.h"

namespace sluice::ops::kernels {
namespace {

constexpr int kLeastRowThreads = 16;
constexpr int kMostRowThreads = 1024;
// So many threads keep the widest rows in this many accesses each.
constexpr int kMostVectors = kMostRowAccesses / kMostRowThreads;

// The shape of a block whose rows have kRowThreads threads each.
template <int kRowThreads>
struct NormBlock {
  static constexpr int kBlockThreads = kRowThreads > kThreads ? kRowThreads : kThreads;
  static constexpr int kRows = kBlockThreads / kRowThreads;  // at a time
  // At least so many blocks share a multiprocessor: half of the threads that it can hold.
  static constexpr int kResident = kMostRowThreads / kBlockThreads;
  static_assert(kNormBlockRows % kRows == 0);

  __device__ static int row() { return static_cast<int>(threadIdx.x) / kRowThreads; }
  __device__ static int thread() { return static_cast<int>(threadIdx.x) % kRowThreads; }
  template <int kWide>
  __device__ static int64_t column_of(int vector) {
    return (static_cast<int64_t>(vector) * kRowThreads + thread()) * kWide;
  }

  // The sum over all threads of the row, returned to each of them; fixed order. All of the block must call
  // it.
  __device__ static float sum(float value) {
    constexpr int kLanes = kRowThreads < 32 ? kRowThreads : 32;
    for (int distance = kLanes / 2; distance > 0; distance /= 2)
      value += __shfl_xor_sync(0xffffffffU, value, distance);
    if constexpr (kRowThreads > 32) {
      constexpr int kRowWarps = kRowThreads / 32;
      __shared__ float of_warp[kBlockThreads / 32];
      if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
      __syncthreads();
      value = 0;
      for (int warp = 0; warp < kRowWarps; ++warp) value += of_warp[row() * kRowWarps + warp];
      __syncthreads();  // before the next call writes
    }
    return value;
  }
};

template <typename S, int kWide, int kRowThreads, int kVectors>
__global__ void __launch_bounds__(NormBlock<kRowThreads>::kBlockThreads, NormBlock<kRowThreads>::kResident)
    rms_norm(const NormForward norm) {
  using Block = NormBlock<kRowThreads>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * Block::kRows + Block::row();
  const int64_t width = row < norm.rows ? norm.width : 0;  // no columns: a row behind the last
  const S* x = static_cast<const S*>(norm.x) + row * norm.width;
  Floats<kWide> kept[kVectors];
  float squares = 0;
  SLUICE_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const int64_t column = Block::template column_of<kWide>(v);
    if (column >= width) continue;
    kept[v] = load<kWide>(x + column);
    SLUICE_UNROLL
    for (int i = 0; i < kWide; ++i) squares += kept[v].at[i] * kept[v].at[i];
  }
  const float r = 1.0F / sqrtf(Block::sum(squares) / static_cast<float>(norm.width) + norm.eps);
  if (Block::thread() == 0 && width > 0) norm.inverse_rms[row] = r;
  SLUICE_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const int64_t column = Block::template column_of<kWide>(v);
    if (column >= width) continue;
    const Floats<kWide> w = load<kWide>(static_cast<const S*>(norm.weight) + column);
    SLUICE_UNROLL
    for (int i = 0; i < kWide; ++i) kept[v].at[i] *= r * (w.at[i] + norm.offset);
    store<kWide>(static_cast<S*>(norm.y) + row * norm.width + column, kept[v]);
  }
}

// The gradient of one row: g = dy·w and n = x·r of one access at a time. Most threads have one access and keep
// both; those of the widest rows, and of narrow ones that a block takes in turns, read them again, from caches:
// more registers would spill.
template <typename S, int kWide, int kRowThreads, int kVectors>
class BackwardRow {
  using Block = NormBlock<kRowThreads>;
  static constexpr bool kKeeps = kVectors == 1 && kRowThreads > 32;

 public:
  // REQUIRES: rows behind the last have width 0 and read nothing.
  __device__ BackwardRow(const NormBackward& norm, int64_t row)
      : norm_(norm),
        begin_(row * norm.width),
        width_(row < norm.rows ? norm.width : 0),
        r_(row < norm.rows ? norm.inverse_rms[row] : 0.0F) {}

  // Adds the weight's gradient to `sums`, and writes dx and y.
  __device__ void run(Floats<kWide> (&sums)[kVectors]) {
    float dot = 0;
    SLUICE_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const int64_t column = Block::template column_of<kWide>(v);
      if (column >= width_) continue;
      read(column);
      const Floats<kWide> w = load<kWide>(static_cast<const S*>(norm_.weight) + column);
      SLUICE_UNROLL
      for (int i = 0; i < kWide; ++i) {
        sums[v].at[i] += g_.at[i] * n_.at[i];
        dot += g_.at[i] * (w.at[i] + norm_.offset) * n_.at[i];
      }
    }
    const float mean = Block::sum(dot) / static_cast<float>(norm_.width);
    SLUICE_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const int64_t column = Block::template column_of<kWide>(v);
      if (column >= width_) continue;
      if constexpr (!kKeeps) read(column);
      write(column, mean);
    }
  }

 private:
  __device__ void read(int64_t column) {
    g_ = load<kWide>(static_cast<const S*>(norm_.dy) + begin_ + column);
    n_ = load<kWide>(static_cast<const S*>(norm_.x) + begin_ + column);
    SLUICE_UNROLL
    for (int i = 0; i < kWide; ++i) n_.at[i] *= r_;
  }

  __device__ void write(int64_t column, float mean) {
    const Floats<kWide> w = load<kWide>(static_cast<const S*>(norm_.weight) + column);
    Floats<kWide> dx{}, y;
    if (norm_.residual != nullptr) dx = load<kWide>(static_cast<const S*>(norm_.residual) + begin_ + column);
    SLUICE_UNROLL
    for (int i = 0; i < kWide; ++i) {
      dx.at[i] += (g_.at[i] * (w.at[i] + norm_.offset) - n_.at[i] * mean) * r_;
      y.at[i] = n_.at[i] * (w.at[i] + norm_.offset);
    }
    store<kWide>(static_cast<S*>(norm_.dx) + begin_ + column, dx);
    store<kWide>(static_cast<S*>(norm_.y) + begin_ + column, y);
  }

  const NormBackward& norm_;
  const int64_t begin_, width_;
  const float r_;
  Floats<kWide> g_, n_;
};

// Writes the block's sums, over the rows that it had side by side.
template <int kWide, int kRowThreads, int kVectors>
__device__ void write_sums(const NormBackward& norm, const Floats<kWide> (&sums)[kVectors]) {
  using Block = NormBlock<kRowThreads>;
  float* to = norm.weight_sums + blockIdx.x * norm.width;
  if constexpr (Block::kRows == 1) {
    SLUICE_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const int64_t column = Block::template column_of<kWide>(v);
      if (column < norm.width) store<kWide>(to + column, sums[v]);
    }
  } else {
    constexpr int kColumns = kRowThreads * kWide;
    __shared__ float of_row[Block::kRows * kColumns];
    SLUICE_UNROLL
    for (int i = 0; i < kWide; ++i)
      of_row[Block::row() * kColumns + Block::thread() * kWide + i] = sums[0].at[i];
    __syncthreads();
    for (int column = static_cast<int>(threadIdx.x); column < norm.width; column += Block::kBlockThreads) {
      float sum = 0;
      for (int row = 0; row < Block::kRows; ++row) sum += of_row[row * kColumns + column];
      to[column] = sum;
    }
  }
}

template <typename S, int kWide, int kRowThreads, int kVectors>
__global__ void __launch_bounds__(NormBlock<kRowThreads>::kBlockThreads, NormBlock<kRowThreads>::kResident)
    rms_norm_backward(const NormBackward norm) {
  using Block = NormBlock<kRowThreads>;
  Floats<kWide> sums[kVectors] = {};
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kNormBlockRows + Block::row();
  SLUICE_UNROLL_BY(1)  // rows that overlap take too many registers
  for (int i = 0; i < kNormBlockRows; i += Block::kRows)
    BackwardRow<S, kWide, kRowThreads, kVectors>(norm, first + i).run(sums);
  write_sums<kWide, kRowThreads>(norm, sums);
}

// Calls visit.template operator()<kRowThreads, kVectors>() with the fewest threads that keep a row of kWide
// elements each.
template <int kWide, int kRowThreads = kLeastRowThreads, typename Visit>
Status visit_row_threads(int64_t width, Visit visit) {
  if (width <= kRowThreads * kWide) return visit.template operator()<kRowThreads, 1>();
  if constexpr (kRowThreads < kMostRowThreads) {
    return visit_row_threads<kWide, 2 * kRowThreads>(width, visit);
  }
  return visit.template operator()<kMostRowThreads, kMostVectors>();
}

}  // namespace

Status launch_rms_norm(Element element, const NormForward& norm, Stream stream) {
  return visit_element(element, [&]<typename S>() {
    const auto of = [&]<int kWide, int kRowThreads, int kVectors>() {
      using Block = NormBlock<kRowThreads>;
      const Grid grid{(norm.rows + Block::kRows - 1) / Block::kRows, Block::kBlockThreads};
      return launch(rms_norm<S, kWide, kRowThreads, kVectors>, grid, stream, NormForward(norm));
    };
    if (!can_be_wide<S>(norm.width, {norm.x, norm.weight, norm.y})) {
      return of.template operator()<1, kMostRowThreads, kMostVectors>();
    }
    return visit_row_threads<kWidest<S>>(norm.width, [&]<int kRowThreads, int kVectors>() {
      return of.template operator()<kWidest<S>, kRowThreads, kVectors>();
    });
  });
}

Status launch_rms_norm_backward(Element element, const NormBackward& norm, Stream stream) {
  const int64_t blocks = (norm.rows + kNormBlockRows - 1) / kNormBlockRows;
  return visit_element(element, [&]<typename S>() {
    const auto of = [&]<int kWide, int kRowThreads, int kVectors>() {
      const Grid grid{blocks, NormBlock<kRowThreads>::kBlockThreads};
      return launch(rms_norm_backward<S, kWide, kRowThreads, kVectors>, grid, stream, NormBackward(norm));
    };
    if (!can_be_wide<S>(norm.width, {norm.dy, norm.x, norm.weight, norm.residual, norm.dx, norm.y})) {
      return of.template operator()<1, kMostRowThreads, kMostVectors>();
    }
    return visit_row_threads<kWidest<S>>(norm.width, [&]<int kRowThreads, int kVectors>() {
      return of.template operator()<kWidest<S>, kRowThreads, kVectors>();
    });
  });
}

}  // namespace sluice::ops::kernels
