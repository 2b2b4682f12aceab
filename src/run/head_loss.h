// The loss of heads of numbers on labelled documents.
#pragma once

#include <memory>

#include "layers/number_loss.h"
#include "model/shape.h"

namespace sluice::run {

// The loss for documents with labels; null: the head is a vocabulary's, or has no labels.
std::shared_ptr<const layers::NumberLoss> label_loss(const model::Shape& shape);

}  // namespace sluice::run
