// Experts in place of a decoder layer's MLP: x + Σ over a row's experts of weight · W_down·swiglu(W_gate_up·
// norm(x)), and of the shared one, which all rows visit.
//
// The rows that visit an expert are gathered, multiplied and added where they came from, expert by expert: no
// row is dropped or padded, and a row's sum is in the order of experts whatever else is in the micro-batch.
// Under TP each rank routes its shard of rows and all learn the routes; of every expert a rank has a part of
// the width. A routing is saved and never made again.
//
// Row names: S rows of this TP rank's shard, T all rows of the micro-batch; K experts of a row, V = T·K
// visits in the order of experts, N those of one; E experts. Widths: H hidden, F this rank's part of an inner
// width, G = 2F.
#pragma once

#include <memory>

#include "layers/part.h"
#include "layers/site.h"
#include "model/layer.h"

namespace sluice::layers {

// REQUIRES: a part with that mixer, which the result refers to.
std::unique_ptr<const Part> make_experts(const Site& site, const model::Part& part);

}  // namespace sluice::layers
