// Mixture of experts in place of a decoder layer's MLP: x + Σ over a row's experts of weight ·
// W_down·swiglu(W_gate_up·norm(x)), plus a shared expert for all rows.
//
// The rows of an expert are gathered, multiplied and added back, expert by expert: no row is dropped or
// padded. A row's sum is in the order of experts, whatever else is in the micro-batch. Under TP each rank
// routes its shard of rows and all-gathers the assignments; it has a part of every expert's width.
// Assignments are saved and never computed again.
//
// Row names: S rows of this TP rank's shard, T all rows of the micro-batch; K experts of a row, V = T·K
// assignments in the order of experts, N those of one expert; E experts. Widths: H hidden, F this rank's part
// of an inner width, G = 2F.
#pragma once

#include <memory>

#include "layers/part.h"
#include "layers/site.h"
#include "model/layer.h"

namespace sluice::layers {

// REQUIRES: `part` has an experts mixer and outlives the result, which refers to it.
std::unique_ptr<const Part> make_experts(const Site& site, const model::Part& part);

}  // namespace sluice::layers
