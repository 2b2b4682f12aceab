// Latent attention (MLA, model/layer.h): makes queries, keys and values of all heads from narrow rows, then
// attends as any other layer, x + W_o·attention(…).
//
// Queries and keys of a head have a rotated part, whose keys all heads share, and an unrotated part. Values
// are padded with zeros to the same width, so kernels, rings and exchanges need no special case. Files keep
// the two dimensions of a rotated pair side by side; here the first dimensions of all pairs come first.
//
// Row names: S rows of this TP rank's shard, T all rows. Widths: H hidden; N a narrow row; Q, K its parts
// from which queries, and keys with values, are made; D a head; P all heads' queries, keys and values; V all
// heads' values without zeros.
#pragma once

#include <memory>

#include "layers/part.h"
#include "layers/site.h"
#include "model/layer.h"

namespace sluice::layers {

// REQUIRES: `part` has a latent attention mixer and outlives the result, which refers to it.
std::unique_ptr<const Part> make_latent_attention(const Site& site, const model::Part& part);

}  // namespace sluice::layers
