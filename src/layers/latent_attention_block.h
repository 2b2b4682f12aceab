// Latent attention at work (model/layer.h): queries, keys and values of all heads from narrow
// rows, then attention as of any other layer, x + W_o·attention(…).
//
// A head's queries and keys are its rotated part, which keys of all heads share, and its unrotated one; its
// values have zeros behind them up to the same width, so kernels, rings and exchanges know of nothing new.
// Files hold pairs of what positions turn side by side: here the first of all pairs come first.
//
// Row names: S rows of this TP rank's shard, T all rows. Widths: H hidden; N of a narrow row, Q and K of what
// queries, and keys with values, are made from; D of a head, P all heads' queries, keys and values; V all
// heads' values without zeros.
#pragma once

#include <memory>

#include "layers/part.h"
#include "layers/site.h"
#include "model/layer.h"

namespace sluice::layers {

// REQUIRES: a part with that mixer, which the result refers to.
std::unique_ptr<const Part> make_latent_attention(const Site& site, const model::Part& part);

}  // namespace sluice::layers
