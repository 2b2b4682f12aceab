// A recurrent layer in place of attention: x + W_out·(norm(o)∘silu(W_gate·n)) with n = norm(x). o is the
// result of a recurrence (ops/recurrence.h). A short convolution mixes its queries, keys and values with the
// rows before them; its decays and rates are computed from tokens (model/layer.h). For Mamba-2, W_out takes
// norm((o + skip∘v)∘silu(W_gate·n)).
#pragma once

#include <memory>

#include "layers/part.h"
#include "layers/site.h"
#include "model/layer.h"

namespace sluice::layers {

// REQUIRES: `part` has a recurrent mixer and outlives the result, which refers to it.
std::unique_ptr<const Part> make_recurrent(const Site& site, const model::Part& part);

}  // namespace sluice::layers
