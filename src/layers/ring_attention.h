// Causal attention of one lane of a ring: keys and values of the sequences that it shares go round (Ring
// Attention, Liu et al. 2023), with causal cutting so that every lane has as much to do in every step.
#pragma once

#include <span>

#include "layers/lane_channel.h"
#include "layers/micro_batch_layout.h"
#include "layers/travelling_keys.h"
#include "ops/attention.h"

namespace sluice::layers {

// All lanes of the ring call it at once, with their own rows. While a lane attends to one block the next is
// on its way; sequences of its own move nothing. Returns what ops::attention would for the lane's rows if
// it held all keys. Memory beside the result: two blocks of what goes round, and keys and values of one.
ops::AttentionResult ring_attention(LaneChannel& channel, const AttendedRows& rows,
                                    const ops::AttentionInput& input, const TravellingKeys& keys);

// The same rows go round again, and the sums of their gradients one step behind them, in the inputs' type.
// Writes all rows of `gradient`, which must not be the input: of its keys what the lane's own queries and, of
// WholeKeys, all others' give. Memory: two blocks and three of gradients.
void ring_attention_backward(LaneChannel& channel, const AttendedRows& rows, const at::Tensor& dout_TND,
                             const ops::AttentionInput& input, const ops::AttentionResult& saved,
                             const ops::AttentionGradient& gradient, const TravellingKeys& keys);

// Adds what blocks of the lane's own rows contribute, in whichever type `gradient` is; that must not be the
// input. Memory: the gradients once more in lse's type, where that is another.
void add_blocks_backward(const at::Tensor& dout_TND, const ops::AttentionInput& input,
                         const ops::AttentionResult& saved, std::span<const ops::AttentionBlock> blocks,
                         const ops::AttentionGradient& gradient);

// Bytes that all lanes of a ring send together for `tokens` shared tokens in one layer, on one TP rank:
// k − 1 times every key and value forwards; twice as much backwards.
int64_t ring_forward_bytes(int lanes, int64_t tokens, int64_t kv_bytes_per_token);
int64_t ring_backward_bytes(int lanes, int64_t tokens, int64_t kv_bytes_per_token);

}  // namespace sluice::layers
