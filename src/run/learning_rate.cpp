#include "run/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sluice::run {

double learning_rate(const config::OptimizerConfig& optimizer, int64_t step, int64_t steps) {
  if (step < optimizer.warmup_steps) {
    return optimizer.lr * static_cast<double>(step + 1) / static_cast<double>(optimizer.warmup_steps);
  }
  if (optimizer.decay == config::Decay::kInverseSqrt) {
    const auto warmed_up = static_cast<double>(std::max<int64_t>(1, optimizer.warmup_steps));
    const double falling = optimizer.lr * std::sqrt(warmed_up / static_cast<double>(step + 1));
    return std::max(falling, std::min(optimizer.lr, optimizer.min_lr));
  }
  const bool stable = optimizer.decay == config::Decay::kWsd;
  const int64_t last_steps = optimizer.decay_steps > 0 ? optimizer.decay_steps : (steps + 9) / 10;
  const int64_t first = std::max(optimizer.warmup_steps, stable ? steps - last_steps : 0);
  if (step < first) return optimizer.lr;
  const int64_t decay_steps = std::max<int64_t>(1, steps - first);
  const double progress =
      std::min(1.0, static_cast<double>(step - first + 1) / static_cast<double>(decay_steps));
  const double span = optimizer.lr - optimizer.min_lr;
  if (optimizer.decay == config::Decay::kCosine) {
    return optimizer.min_lr + span * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  }
  if (optimizer.decay == config::Decay::kLinear || stable) return optimizer.min_lr + span * (1.0 - progress);
  return optimizer.lr;
}

}  // namespace sluice::run
