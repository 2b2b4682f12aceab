// Rotary positions turn the heads of queries and keys. Positions may also scale queries.
//
// Row names: T rows; N heads, D a head's width, Q all queries' widths.
#pragma once

#include <ATen/core/Tensor.h>

#include "model/layer.h"
#include "ops/rotary.h"

namespace sluice::layers {

// Reorders the last dimension from pairs side by side to all firsts, then all seconds; and back.
at::Tensor halves_of(const at::Tensor& neighbours);
at::Tensor neighbours_of(const at::Tensor& halves);

// Rotates heads in place, or gradients of rotated heads back. Pairs that lie side by side are reordered on
// the way, firsts before seconds. Scores stay the same because queries and keys are both reordered. x_TND:
// see ops::rotate.
void turn_heads(const at::Tensor& x_TND, model::Turning turning, const ops::RotaryTable& table,
                const at::Tensor& position_T, ops::Rotation rotation);

// Scales queries, or their gradients, in place by the factor of their positions.
void grow_queries(const at::Tensor& q_TQ, const model::QueryGrowth& growth, const at::Tensor& position_T);

}  // namespace sluice::layers
