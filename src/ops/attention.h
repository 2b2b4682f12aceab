// Attention over packed sequences, causal or both ways: no token attends across sequences.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ops/attention_input.h"

namespace sluice::ops {

// REQUIRES: every length > 0.
PackedSequences packed_sequences(const std::vector<int64_t>& lengths, const at::Device& device);

AttentionResult attention(const AttentionInput& input, const PackedSequences& sequences);

// Gradients of `input`, written to views of the same shapes, which may be the inputs themselves. `saved` is
// the forward's result; rows of no sequence get zero.
void attention_backward(const at::Tensor& dout_TND, const AttentionInput& input, const AttentionResult& saved,
                        const PackedSequences& sequences, const AttentionGradient& gradient);

// What the queries have seen of two sets of keys that share none, in `seen`: out and lse over both.
// seen.out_TND is in lse's type. REQUIRES: every query has seen a key of `more`.
void merge(const AttentionResult& seen, const AttentionResult& more);

// Of queries [T, N, D] that have seen nothing yet: out 0 and lse −inf, in the type that both are added up in.
AttentionResult nothing_seen(const at::Tensor& q_TND);
// Goes on from what the queries have `seen`: their out and lse become those over old and new keys. Both are
// in lse's type; rows that have seen nothing have lse -inf and out 0.
// REQUIRES here and below: no interval is empty.
void attend_blocks(const AttentionInput& input, std::span<const AttentionBlock> blocks,
                   const AttentionResult& seen);

// Adds what the blocks contribute to the gradients, which are in lse's type. `saved` is the result over all
// the keys that the queries see, wherever they come from, its out in q's type.
void attend_blocks_backward(const at::Tensor& dout_TND, const AttentionInput& input,
                            const AttentionResult& saved, std::span<const AttentionBlock> blocks,
                            const AttentionGradient& gradient);

// What attention takes of a device's memory while its backward runs, at most, beside inputs, results and
// gradients: a part that grows with a micro-batch's rows, and one that does not. None on the CPU.
struct AttentionScratch {
  int64_t bytes = 0;
  int64_t bytes_per_row = 0;
};
struct AttentionShape {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t dimensions = 0;
  bool capped = false;    // scores
  bool windowed = false;  // some layers
};
AttentionScratch attention_scratch(const AttentionShape& shape, at::ScalarType type,
                                   const at::Device& device);
// Why attention of these is left to plain operators on the device, in words; empty where a fused kernel takes
// it.
std::string unfused_because(const AttentionShape& shape, at::ScalarType type, const at::Device& device);

// Who attends on GPUs, for people (windows: flash attention, between lanes ATen; caps: ATen): cuDNN with its
// version, or why it does not. Known once something attended.
std::string attention_report();

// The same by libtorch's flash attention, on GPUs: where cuDNN does not take the input, and to compare it
// with. attention_backward leaves rows of no sequence.
namespace flash {
AttentionResult attention(const AttentionInput& input, const PackedSequences& sequences);
void attention_backward(const at::Tensor& dout_TND, const AttentionInput& input, const AttentionResult& saved,
                        const PackedSequences& sequences, const AttentionGradient& gradient);
}  // namespace flash

// Of scores that were taken over keys alone (Xiao et al. 2023, "Efficient Streaming Language Models with
// Attention Sinks"): each head has one more, sinks_N, that no value goes with. Its softmax shares shrink the
// output by exp(lse − lse'), where lse' = log(exp lse + exp sink), and take lse's place; backwards of
// attention are then those with the sink. Changes `result`; rows of no sequence stay.
void add_sinks(const AttentionResult& result, const at::Tensor& sinks_N);
// Adds to dsinks_N, whose type may be wider: −Σ exp(sink − lse')·(dout·out) over the rows. `saved` has the
// sinks in it.
void sinks_backward(const at::Tensor& dout_TND, const AttentionResult& saved, const at::Tensor& sinks_N,
                    const at::Tensor& dsinks_N);

// The same from ATen's operators: for GPUs where there is no fused kernel (flash attention takes 16-bit
// types, heads of at most 256 dimensions, a multiple of 8, and scores without a cap), and for tests.
// attention_backward leaves rows of no sequence.
namespace aten {
inline constexpr int64_t kMostScores = int64_t{1} << 26;  // elements of a block's scores
void merge(const AttentionResult& seen, const AttentionResult& more);
AttentionResult attention(const AttentionInput& input, const PackedSequences& sequences);
void attention_backward(const at::Tensor& dout_TND, const AttentionInput& input, const AttentionResult& saved,
                        const PackedSequences& sequences, const AttentionGradient& gradient);
void attend_blocks(const AttentionInput& input, std::span<const AttentionBlock> blocks,
                   const AttentionResult& seen);
void attend_blocks_backward(const at::Tensor& dout_TND, const AttentionInput& input,
                            const AttentionResult& saved, std::span<const AttentionBlock> blocks,
                            const AttentionGradient& gradient);
}  // namespace aten

}  // namespace sluice::ops
