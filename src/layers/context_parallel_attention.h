// Context-parallel causal attention of one lane. A row schedule (strategy/row_schedule.h) says which rows
// travel. Keys and values go round a ring of one or two levels, or straight to lanes that see them. Queries
// may go to the lanes with the keys instead, and their outputs return.
#pragma once

#include <span>

#include "layers/exchanged_keys.h"
#include "layers/lane_channel.h"
#include "layers/row_layout.h"
#include "ops/attention.h"

namespace sluice::layers {

// Collective over the lanes, each with its own rows. Transfers for later steps run while a lane attends; its
// unshared sequences move nothing. `keys`: rows that travel in place of keys and values; null: these travel.
// Returns what ops::attention would return for the lane's rows with all keys. Memory besides the result:
// others' rows at hand, as many that leave, wide outputs of others' queries.
ops::AttentionResult context_parallel_attention(LaneChannel& channel, const AttendedRows& rows,
                                                const ops::AttentionInput& input, const ExchangedKeys* keys);

// The same rows travel again, and their gradients return in the inputs' type. Travelling queries take along
// their outputs, output gradients and log-sum-exps. Writes all rows of `gradient`, which must not alias the
// input. Key gradients contain what queries on this lane gave and, if keys and values travel themselves
// (`keys` null), what all other lanes' queries gave. Memory besides the forward's: a set of gradients in the
// making, one leaving, one arriving. Wide gradients: the lane's own queries, and its keys if others' queries
// come or attention has a window.
void context_parallel_attention_backward(LaneChannel& channel, const AttendedRows& rows,
                                         const at::Tensor& dout_TND, const ops::AttentionInput& input,
                                         const ops::AttentionResult& saved,
                                         const ops::AttentionGradient& gradient, const ExchangedKeys* keys);

// Adds the contributions of blocks of the lane's own rows to `gradient`, which may have any type but must not
// alias the input. Memory: the gradients once more in lse's type, if theirs is another.
void add_blocks_backward(const at::Tensor& dout_TND, const ops::AttentionInput& input,
                         const ops::AttentionResult& saved, std::span<const ops::AttentionBlock> blocks,
                         const ops::AttentionGradient& gradient);

}  // namespace sluice::layers
