// Attention and its gradients on a CPU, the contracts of attention.h: tile by tile of scores, so that memory
// grows with a sequence's length only. A task is a key head of a sequence or block with its query heads;
// threads take the tasks as they get free, and every number is one task's alone, so results depend neither on
// the threads nor on how sequences are packed.
#pragma once

#include "ops/attention_input.h"

namespace sluice::ops::cpu {

// attention_backward leaves rows of no sequence.
AttentionResult attention(const AttentionInput& input, const PackedSequences& sequences);
void attention_backward(const at::Tensor& dout_TND, const AttentionInput& input, const AttentionResult& saved,
                        const PackedSequences& sequences, const AttentionGradient& gradient);

void attend_blocks(const AttentionInput& input, std::span<const AttentionBlock> blocks,
                   const AttentionResult& seen);
void attend_blocks_backward(const at::Tensor& dout_TND, const AttentionInput& input,
                            const AttentionResult& saved, std::span<const AttentionBlock> blocks,
                            const AttentionGradient& gradient);

}  // namespace sluice::ops::cpu
