// The loss of heads of numbers on labelled documents.
#pragma once

#include <memory>

#include "layers/number_loss.h"
#include "model/model.h"

namespace sluice::run {

// The loss for documents with labels; null: the head is a vocabulary's, or has no labels.
std::shared_ptr<const layers::NumberLoss> label_loss(const model::Model& model);

}  // namespace sluice::run
