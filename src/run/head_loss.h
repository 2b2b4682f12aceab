// What heads of numbers minimise, and what an evaluation says of them.
#pragma once

#include <memory>

#include "layers/number_loss.h"
#include "model/shape.h"

namespace sluice::run {

// Of documents with labels; null: the head is a vocabulary's, or has no labels.
std::shared_ptr<const layers::NumberLoss> label_loss(const model::Shape& shape);

}  // namespace sluice::run
