// Causal attention of one lane of several that share sequences, whose rows travel by a schedule
// (strategy/row_schedule.h): keys and values round a ring, on one level or two, or straight to those that see
// them; queries to those that have the keys, and outputs back.
#pragma once

#include <span>

#include "layers/exchanged_keys.h"
#include "layers/lane_channel.h"
#include "layers/row_layout.h"
#include "ops/attention.h"

namespace sluice::layers {

// All lanes call it at once, with their own rows. While a lane attends, what it needs next is on its way;
// sequences of its own move nothing. `keys`: what travels of keys and values, null: they do. Returns what
// ops::attention would for the lane's rows if it held all keys. Memory beside the result: others' rows at
// hand (strategy::most_at_hand), and as many that leave; of others' queries their wide outputs.
ops::AttentionResult context_parallel_attention(LaneChannel& channel, const AttendedRows& rows,
                                                const ops::AttentionInput& input, const ExchangedKeys* keys);

// The same rows travel again, and their gradients come home, in the inputs' type. Writes all rows of
// `gradient`, which must not be the input: of its keys what the queries that met them here and, where these
// travel whole, all others give. Queries take their outputs,
// the gradients of these and log-sum-exps with them. Memory: besides, a set of gradients that is made, one
// that leaves and one that comes; wide gradients of the lane's own queries, and of its keys where others'
// queries come or through a window.
void context_parallel_attention_backward(LaneChannel& channel, const AttendedRows& rows,
                                         const at::Tensor& dout_TND, const ops::AttentionInput& input,
                                         const ops::AttentionResult& saved,
                                         const ops::AttentionGradient& gradient, const ExchangedKeys* keys);

// Adds what blocks of the lane's own rows contribute, in whichever type `gradient` is; that must not be the
// input. Memory: the gradients once more in lse's type, where that is another.
void add_blocks_backward(const at::Tensor& dout_TND, const ops::AttentionInput& input,
                         const ops::AttentionResult& saved, std::span<const ops::AttentionBlock> blocks,
                         const ops::AttentionGradient& gradient);

}  // namespace sluice::layers
