// The part that takes a layer's embeddings (model::LayerInput).
#pragma once

#include <memory>

#include "layers/part.h"
#include "layers/site.h"

namespace sluice::layers {

std::unique_ptr<const Part> make_layer_input(const Site& site, const model::Part& part);

}  // namespace sluice::layers
