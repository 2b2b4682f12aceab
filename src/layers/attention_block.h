// Attention in a block: W_o·attention(rotary(norms of heads(W_qkv·n + b_qkv))) of the part's rows n.
#pragma once

#include <memory>

#include "layers/part.h"
#include "layers/site.h"

namespace sluice::layers {

std::unique_ptr<const Part> make_attention(const Site& site);

}  // namespace sluice::layers
