// How positions turn the heads of queries and keys, and make queries grow.
//
// Row names: T rows; N heads, D a head's width, Q all queries' widths.
#pragma once

#include <ATen/core/Tensor.h>

#include "model/layer.h"
#include "ops/rotary.h"

namespace sluice::layers {

// Of neighbours the firsts, then the seconds; and back. Of the last dimension.
at::Tensor halves_of(const at::Tensor& neighbours);
at::Tensor neighbours_of(const at::Tensor& halves);

// Turns heads in place, or takes gradients of turned heads back. Neighbours are put apart where they turn,
// the firsts before the seconds: scores are the same, as queries and keys both have it so. x_TND: see
// ops::rotate.
void turn_heads(const at::Tensor& x_TND, model::Turning turning, const ops::RotaryTable& table,
                const at::Tensor& position_T, ops::Rotation rotation);

// Multiplies queries, or their gradients, in place.
void grow_queries(const at::Tensor& q_TQ, const model::QueryGrowth& growth, const at::Tensor& position_T);

}  // namespace sluice::layers
