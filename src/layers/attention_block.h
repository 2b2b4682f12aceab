// Attention in a block: W_o·attention(rotary(norms of heads(W_qkv·n + b_qkv))) of the part's rows n.
#pragma once

#include <memory>

#include "layers/part.h"
#include "layers/site.h"
#include "model/layer.h"

namespace sluice::layers {

// REQUIRES: `part` has an attention mixer and outlives the result, which refers to it.
std::unique_ptr<const Part> make_attention(const Site& site, const model::Part& part);

}  // namespace sluice::layers
