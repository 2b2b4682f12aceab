// The kernels of ops/cross_entropy.h, whose source has the derivation. The statistics read each logit once.
// The gradient reads it again and may overwrite it, because exponentials are never stored. Both are bound by
// memory: 6 bytes per bfloat16 logit, 10 per float logit with a narrow gradient.
#include <cfloat>
#include <cmath>

#include "ops/cuda/kernel_parts.h"

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

// Merges over all threads of the block; each thread gets the result, always in the same order. All threads
// must call it, once per kernel.
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
template <typename L, int kWide>
__global__ void row_statistics(const L* logits, const int64_t* targets, int64_t begin, float* statistics,
                               int64_t columns) {
  const int64_t row = blockIdx.x;
  const L* of_row = logits + row * columns;
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
  statistics[row * 3 + 2] = target >= 0 && target < columns ? widen(of_row[target]) : -INFINITY;
}

template <typename L, typename S, int kWide>
__global__ void cross_entropy_gradient(const CrossEntropyGradient of, int64_t vectors) {
  if (global_thread() >= vectors) return;
  const int64_t in_row = of.columns / kWide, row = global_thread() / in_row;
  const int64_t column = global_thread() % in_row * kWide, target = of.targets[row] - of.begin;
  const float maximum = of.whole[row * 3], inverse_sum = 1.0F / of.whole[row * 3 + 1];
  Floats<kWide> l = load<kWide>(static_cast<const L*>(of.logits) + row * of.columns + column);
  SLUICE_UNROLL
  for (int i = 0; i < kWide; ++i) {
    l.at[i] = expf(l.at[i] - maximum) * inverse_sum - (column + i == target ? 1.0F : 0.0F);
  }
  store<kWide>(static_cast<S*>(of.gradient) + row * of.columns + column, l);
}

template <typename L, typename S>
Status launch_gradient_of(const CrossEntropyGradient& of, Stream stream) {
  const int64_t elements = of.rows * of.columns;
  if (can_be_wide<S>(of.columns, {of.logits, of.gradient})) {
    const int64_t vectors = elements / kWidest<S>;
    return launch(cross_entropy_gradient<L, S, kWidest<S>>, blocks_for(vectors), stream,
                  CrossEntropyGradient(of), vectors);
  }
  return launch(cross_entropy_gradient<L, S, 1>, blocks_for(elements), stream, CrossEntropyGradient(of),
                int64_t{elements});
}

}  // namespace

Status launch_row_statistics(Element element, const void* logits, const int64_t* targets, int64_t begin,
                             float* statistics, int64_t rows, int64_t columns, Stream stream) {
  return visit_element(element, [&]<typename L>() {
    const bool wide = can_be_wide<L>(columns, {logits});
    return launch(wide ? row_statistics<L, kWidest<L>> : row_statistics<L, 1>, rows, stream,
                  static_cast<const L*>(logits), targets, begin, statistics, columns);
  });
}

Status launch_cross_entropy_gradient(const CrossEntropyGradient& gradient, Stream stream) {
  if (gradient.logits_element == Element::kBFloat16)
    return launch_gradient_of<BFloat16, BFloat16>(gradient, stream);
  if (gradient.gradient_element == Element::kBFloat16)
    return launch_gradient_of<float, BFloat16>(gradient, stream);
  return launch_gradient_of<float, float>(gradient, stream);
}

}  // namespace sluice::ops::kernels
