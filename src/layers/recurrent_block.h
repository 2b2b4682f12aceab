// A recurrent layer where others have attention: x + W_out·(norm(o)∘silu(W_gate·n)), with n = norm(x) and o
// what a recurrence (ops/recurrence.h) gives for queries, keys and values that a short convolution has mixed
// with the rows before them, and for decays and rates that tokens choose (model/layer.h). Of Mamba-2
// W_out takes norm((o + skip∘v)∘silu(W_gate·n)).
#pragma once

#include <memory>

#include "layers/part.h"
#include "layers/site.h"
#include "model/layer.h"

namespace sluice::layers {

// REQUIRES: a part with that mixer, which the result refers to.
std::unique_ptr<const Part> make_recurrent(const Site& site, const model::Part& part);

}  // namespace sluice::layers
