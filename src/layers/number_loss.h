// Losses of heads of numbers (loss.h), as transformers' classes of sequences and tokens take them. Those that
// take figures are 0 where none are given.
#pragma once

#include <cstdint>
#include <memory>

#include "layers/loss.h"

namespace sluice::layers {

// −log softmax(target) over the row's numbers. Its note: rows whose target has the largest number.
std::shared_ptr<const NumberLoss> class_cross_entropy();
// The mean over the row's numbers of −log σ(number), or −log(1 − σ(number)) where the given figure is 0
// (binary cross-entropy of several labels at once); figures are 0 to 1. Its note: rows all of whose numbers
// are on their figures' side of 0.
std::shared_ptr<const NumberLoss> binary_cross_entropy();
// The mean over the row's numbers of their squared difference from the given ones. It has no note.
std::shared_ptr<const NumberLoss> squared_error();
// The sum of the row's numbers, each times the given one: a loss whose gradient was found from all numbers of
// a batch before. What it reports is that loss's: the row's last given figure, which follows the others.
std::shared_ptr<const NumberLoss> found_gradient();

// For a critic, given a row's return R and its value V before a rollout's updates: half of the larger of
// (v − R)² and (clamp(v, V ± clip) − R)², as TRL's and verl's PPO have it; clip 0: of the first alone. Its
// note: rows of which the second is larger, so that nothing moves them.
std::shared_ptr<const NumberLoss> clipped_value_error(double clip);

}  // namespace sluice::layers
