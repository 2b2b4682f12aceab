// The gated MLP of a block: W_down·act(W_gate·n)∘(W_up·n) of the part's rows n.
#pragma once

#include <memory>

#include "layers/part.h"
#include "layers/site.h"
#include "model/layer.h"

namespace sluice::layers {

// REQUIRES: `part` has an MLP mixer and outlives the result, which refers to it.
std::unique_ptr<const Part> make_mlp(const Site& site, const model::Part& part);

}  // namespace sluice::layers
