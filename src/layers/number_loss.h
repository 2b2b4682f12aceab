// Losses of heads of numbers (loss.h), as in transformers' sequence and token classification. Losses that
// take figures are 0 for batches without figures.
#pragma once

#include <cstdint>
#include <memory>

#include "layers/loss.h"

namespace sluice::layers {

// −log softmax(target) over the row's numbers. Its note counts rows whose target has the largest number.
std::shared_ptr<const NumberLoss> class_cross_entropy();
// Binary cross-entropy of several labels: the mean over the row's numbers of −log σ(number), or of −log(1 −
// σ(number)) where the given figure is 0. Figures lie between 0 and 1. Its note counts rows with all numbers
// on their figures' side of 0.
std::shared_ptr<const NumberLoss> binary_cross_entropy();
// The mean squared difference of the row's numbers from the given figures. It has no note.
std::shared_ptr<const NumberLoss> squared_error();
// The sum of the row's numbers times given figures: the gradient of a loss that was found before, from all
// numbers of a batch. It reports that loss: the row's last figure, which follows the others.
std::shared_ptr<const NumberLoss> found_gradient();

// Clipped value loss of a critic, as in TRL's and verl's PPO. R is the row's return, V its value before a
// rollout's updates. The loss is half of the larger of (v − R)² and (clamp(v, V ± clip) − R)²; clip 0: of the
// first alone. Its note counts rows whose second term is larger, so that their gradient is 0.
std::shared_ptr<const NumberLoss> clipped_value_error(double clip);

}  // namespace sluice::layers
