// ops/cross_entropy.h, whose source has the derivation. The statistics read each logit once, the gradient
// reads it a second time and writes it narrow: exponentials are never stored.
#include <cfloat>
#include <cmath>

#include "ops/kernel_parts.h"

namespace sluice::ops::kernels {
namespace {

// A maximum and the sum of exponentials relative to it.
struct SoftmaxSum {
  float maximum = -FLT_MAX;
  float sum = 0;
};

__device__ SoftmaxSum merge(SoftmaxSum a, SoftmaxSum b) {
  const float maximum = fmaxf(a.maximum, b.maximum);
  return {maximum, a.sum * expf(a.maximum - maximum) + b.sum * expf(b.maximum - maximum)};
}

// Over all threads of the block, on each of them, always in the same order. All threads call it, once a
// kernel.
__device__ SoftmaxSum block_merge(SoftmaxSum own) {
  __shared__ SoftmaxSum of_warp[kWarps];
  for (int distance = 16; distance > 0; distance /= 2) {
    const float maximum = __shfl_xor_sync(0xffffffffU, own.maximum, distance);
    const float sum = __shfl_xor_sync(0xffffffffU, own.sum, distance);
    own = merge(own, {maximum, sum});
  }
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
  __syncthreads();
  SoftmaxSum all = of_warp[0];
  for (int warp = 1; warp < kWarps; ++warp) all = merge(all, of_warp[warp]);
  return all;
}

// A block for each row.
template <int kWide>
__global__ void row_statistics(const float* logits, const int64_t* targets, int64_t begin, float* statistics,
                               int64_t columns) {
  const int64_t row = blockIdx.x;
  const float* of_row = logits + row * columns;
  SoftmaxSum own;
  SLUICE_UNROLL_BY(4)
  for (int64_t column = threadIdx.x * kWide; column < columns; column += kThreads * kWide) {
    const Floats<kWide> l = load<kWide>(of_row + column);
    float maximum = own.maximum;
    SLUICE_UNROLL
    for (int i = 0; i < kWide; ++i) maximum = fmaxf(maximum, l.at[i]);
    float sum = own.sum * expf(own.maximum - maximum);
    SLUICE_UNROLL
    for (int i = 0; i < kWide; ++i) sum += expf(l.at[i] - maximum);
    own = {maximum, sum};
  }
  const SoftmaxSum all = block_merge(own);
  if (threadIdx.x != 0) return;
  const int64_t target = targets[row] - begin;
  statistics[row * 3] = all.maximum;
  statistics[row * 3 + 1] = all.sum;
  statistics[row * 3 + 2] = target >= 0 && target < columns ? of_row[target] : -INFINITY;
}

template <typename S, int kWide>
__global__ void cross_entropy_gradient(const float* logits, const float* whole, const int64_t* targets,
                                       int64_t begin, S* gradient, int64_t vectors, int64_t columns) {
  if (global_thread() >= vectors) return;
  const int64_t in_row = columns / kWide, row = global_thread() / in_row;
  const int64_t column = global_thread() % in_row * kWide, target = targets[row] - begin;
  const float maximum = whole[row * 3], inverse_sum = 1.0F / whole[row * 3 + 1];
  Floats<kWide> l = load<kWide>(logits + row * columns + column);
  SLUICE_UNROLL
  for (int i = 0; i < kWide; ++i) {
    l.at[i] = expf(l.at[i] - maximum) * inverse_sum - (column + i == target ? 1.0F : 0.0F);
  }
  store<kWide>(gradient + row * columns + column, l);
}

}  // namespace

Status launch_row_statistics(const float* logits, const int64_t* targets, int64_t begin, float* statistics,
                             int64_t rows, int64_t columns, Stream stream) {
  const bool wide = can_be_wide<float>(columns, {logits});
  return launch(wide ? row_statistics<kWidest<float>> : row_statistics<1>, rows, stream, logits, targets,
                begin, statistics, columns);
}

Status launch_cross_entropy_gradient(Element element, const float* logits, const float* whole,
                                     const int64_t* targets, int64_t begin, void* gradient, int64_t rows,
                                     int64_t columns, Stream stream) {
  return visit_element(element, [&]<typename S>() {
    auto* out = static_cast<S*>(gradient);
    if (can_be_wide<S>(columns, {logits, gradient})) {
      const int64_t vectors = rows * columns / kWidest<S>;
      return launch(cross_entropy_gradient<S, kWidest<S>>, blocks_for(vectors), stream, logits, whole,
                    targets, begin, out, vectors, columns);
    }
    return launch(cross_entropy_gradient<S, 1>, blocks_for(rows * columns), stream, logits, whole, targets,
                  begin, out, rows * columns, columns);
  });
}

}  // namespace sluice::ops::kernels
