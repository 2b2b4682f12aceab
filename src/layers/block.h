// A layer of the model program at work: its parts one behind the other (model/layer.h).
#pragma once

#include <memory>

#include "layers/operation.h"
#include "layers/site.h"

namespace sluice::layers {

std::unique_ptr<Operation> make_block(const Site& site);

}  // namespace sluice::layers
