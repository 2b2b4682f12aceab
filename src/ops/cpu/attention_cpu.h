// Attention and its gradients on a CPU, the contracts of attention.h. Scores are computed tile by tile, so
// memory grows linearly with a sequence's length. A task is a key head of a sequence or block with its query
// heads. Threads take tasks as they become free. Each number is computed by one task, so results depend
// neither on the threads nor on how sequences are packed.
#pragma once

#include "ops/attention_input.h"

namespace sluice::ops::cpu {

// Here attention_backward does not write rows of no sequence.
AttentionResult attention(const AttentionInput& input, const PackedSequences& sequences);
void attention_backward(const at::Tensor& dout_TND, const AttentionInput& input, const AttentionResult& saved,
                        const PackedSequences& sequences, const AttentionGradient& gradient);

void attend_blocks(const AttentionInput& input, std::span<const AttentionBlock> blocks,
                   const AttentionResult& seen);
void attend_blocks_backward(const at::Tensor& dout_TND, const AttentionInput& input,
                            const AttentionResult& saved, std::span<const AttentionBlock> blocks,
                            const AttentionGradient& gradient);

}  // namespace sluice::ops::cpu
