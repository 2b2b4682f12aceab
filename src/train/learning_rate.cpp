#include "train/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sluice::train {

double learning_rate(const config::OptimizerConfig& optimizer, int64_t step, int64_t steps) {
  if (step < optimizer.warmup_steps) {
    return optimizer.lr * static_cast<double>(step + 1) / static_cast<double>(optimizer.warmup_steps);
  }
  const int64_t decay_steps = std::max<int64_t>(1, steps - optimizer.warmup_steps);
  const double progress = std::min(
      1.0, static_cast<double>(step - optimizer.warmup_steps + 1) / static_cast<double>(decay_steps));
  const double span = optimizer.lr - optimizer.min_lr;
  if (optimizer.decay == "cosine") {
    return optimizer.min_lr + span * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  }
  if (optimizer.decay == "linear") return optimizer.min_lr + span * (1.0 - progress);
  return optimizer.lr;
}

}  // namespace sluice::train
