// Attention by libtorch's flash attention (version 2), on GPUs. Internal to src/ops.
#pragma once

#include <span>

#include "ops/attention_input.h"

namespace sluice::ops {

// The same functions by libtorch's flash attention, on GPUs: used if cuDNN does not take the input, and as a
// reference for cuDNN. Here attention_backward does not write rows of no sequence.
namespace flash {
AttentionResult attention(const AttentionInput& input, const PackedSequences& sequences);
void attention_backward(const at::Tensor& dout_TND, const AttentionInput& input, const AttentionResult& saved,
                        const PackedSequences& sequences, const AttentionGradient& gradient);
void attend_blocks(const AttentionInput& input, std::span<const AttentionBlock> blocks,
                   const AttentionResult& seen);
void attend_blocks_backward(const at::Tensor& dout_TND, const AttentionInput& input,
                            const AttentionResult& saved, std::span<const AttentionBlock> blocks,
                            const AttentionGradient& gradient);
}  // namespace flash

}  // namespace sluice::ops
