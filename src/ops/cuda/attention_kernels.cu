// The merge() of ops/attention.h, whose source has the formula. Bound by memory: reads 6 and writes 4 bytes
// per element of out (bfloat16 results into float). Threads for one head of one row are in one block, because
// all read the head's log-sum-exp before one of them writes it.
#include <cmath>

#include "ops/cuda/kernel_parts.h"

namespace sluice::ops::kernels {
namespace {

template <typename S, int kWide>
__global__ void merge_attention(const AttentionMerge merge) {
  const int64_t in_head = merge.dimensions / kWide, heads_of_block = kThreads / in_head;
  const int64_t own = threadIdx.x / in_head, vector = threadIdx.x % in_head;
  const int64_t head_of_row = blockIdx.x * heads_of_block + own;
  const bool works = own < heads_of_block && head_of_row < merge.rows * merge.heads;
  const int64_t row = head_of_row / merge.heads, head = head_of_row % merge.heads;
  float* lse = merge.lse + head * merge.lse_stride + row;
  float before = 0, more = 0;
  if (works) {
    before = *lse;
    more = merge.more_lse[head * merge.more_lse_stride + row];
  }
  __syncthreads();
  if (!works) return;
  const float greater = fmaxf(before, more);
  // If neither set has keys, both weights are zero: −∞ less −∞ is NaN.
  const bool sees = greater > -INFINITY;
  const float total = sees ? greater + log1pf(expf(fminf(before, more) - greater)) : greater;
  const float share = sees ? expf(before - total) : 0, share_of_more = sees ? expf(more - total) : 0;
  const int64_t at = head_of_row * merge.dimensions + vector * kWide;
  Floats<kWide> out = load<kWide>(merge.out + at);
  const Floats<kWide> more_out = load<kWide>(static_cast<const S*>(merge.more_out) + at);
  SLUICE_UNROLL
  for (int i = 0; i < kWide; ++i) out.at[i] = out.at[i] * share + more_out.at[i] * share_of_more;
  store<kWide>(merge.out + at, out);
  if (vector == 0) *lse = total;
}

template <typename S, int kWide>
Status launch_wide(const AttentionMerge& merge, Stream stream) {
  const int64_t heads_of_block = kThreads / (merge.dimensions / kWide);
  const int64_t blocks = (merge.rows * merge.heads + heads_of_block - 1) / heads_of_block;
  return launch(merge_attention<S, kWide>, blocks, stream, AttentionMerge(merge));
}

}  // namespace

Status launch_attention_merge(Element element, const AttentionMerge& merge, Stream stream) {
  return visit_element(element, [&]<typename S>() {
    return can_be_wide<S>(merge.dimensions, {merge.out, merge.more_out})
               ? launch_wide<S, kWidest<S>>(merge, stream)
               : launch_wide<S, 1>(merge, stream);
  });
}

}  // namespace sluice::ops::kernels
