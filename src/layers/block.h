// A layer of the model program at work: its parts one behind the other (model/layer.h).
#pragma once

#include <memory>

#include "layers/operation.h"
#include "layers/site.h"

namespace sluice::layers {

// `layer`: the site's operation's, or that of its head's MTP layer.
std::unique_ptr<Operation> make_block(const Site& site, const model::Layer& layer);

}  // namespace sluice::layers
