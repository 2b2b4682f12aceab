// Causal attention over packed sequences: no token attends across sequences.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace sluice::ops {

// Where packed sequences lie: sequence i has rows [begins[i], begins[i+1]). Rows from begins.back() on belong
// to none.
struct PackedSequences {
  std::vector<int64_t> begins;  // size: sequences + 1, ascending, first 0; no empty sequence
  at::Tensor begins_device;     // the same as int32 on the tensors' device; used by CUDA kernels only
  int64_t longest = 0;
};
// REQUIRES: every length > 0.
PackedSequences packed_sequences(const std::vector<int64_t>& lengths, const at::Device& device);

// T rows, N query heads, K key/value heads (N a multiple of K), D dimensions. Query and key tensors may be
// strided views whose last dimension is dense.
struct AttentionInput {
  at::Tensor q_TND;
  at::Tensor k_TKD;
  at::Tensor v_TKD;
  double scale = 1.0;  // of the scores, before the softmax
};

struct AttentionResult {
  at::Tensor out_TND;  // dense; rows of no sequence are zero
  at::Tensor lse_NT;   // log Σ exp(scores), float (double for double): what backward and ring merges need
  at::Tensor rng;      // CUDA kernels' dropout state; unused, but backward asks for it
};
AttentionResult attention(const AttentionInput& input, const PackedSequences& sequences);

// Gradients of `input`, written to views of the same shapes, which may be the inputs themselves. `saved` is
// the forward's result; rows of no sequence get zero.
struct AttentionGradient {
  at::Tensor dq_TND;
  at::Tensor dk_TKD;
  at::Tensor dv_TKD;
};
void attention_backward(const at::Tensor& dout_TND, const AttentionInput& input, const AttentionResult& saved,
                        const PackedSequences& sequences, const AttentionGradient& gradient);

// The same from ATen's operators: for GPUs where there is no fused kernel (it takes 16-bit types and heads of
// at most 256 dimensions, a multiple of 8), and for tests. attention_backward leaves rows of no sequence.
namespace aten {
AttentionResult attention(const AttentionInput& input, const PackedSequences& sequences);
void attention_backward(const at::Tensor& dout_TND, const AttentionInput& input, const AttentionResult& saved,
                        const PackedSequences& sequences, const AttentionGradient& gradient);
}  // namespace aten

}  // namespace sluice::ops
