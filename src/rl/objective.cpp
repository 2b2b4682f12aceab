#include "rl/objective.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace sluice::rl {

using config::Baseline;
using config::LossAggMode;
using config::RlAlgorithm;

Objective objective_of(const config::RlConfig& config) {
  Objective objective;
  switch (config.algorithm) {
    case RlAlgorithm::kNone:
    case RlAlgorithm::kDpo:
    case RlAlgorithm::kKto: break;
    case RlAlgorithm::kGrpo: objective.loss_agg_mode = LossAggMode::kSequence; break;
    case RlAlgorithm::kDapo:
      objective.clip_high = 0.28;
      objective.dynamic_sampling = true;
      objective.overlong_buffer = config.max_completion_length / 5;
      break;
    case RlAlgorithm::kDrGrpo:
      objective.baseline = Baseline::kMean;
      objective.loss_agg_mode = LossAggMode::kConstant;
      break;
    case RlAlgorithm::kReinforce: objective.baseline = Baseline::kLeaveOneOut; break;
    case RlAlgorithm::kPpo: objective.learns_values = true; break;
  }
  if (config.baseline != Baseline::kAuto) objective.baseline = config.baseline;
  if (config.loss_agg_mode != LossAggMode::kAuto) objective.loss_agg_mode = config.loss_agg_mode;
  if (config.clip_low) objective.clip_low = *config.clip_low;
  if (config.clip_high) objective.clip_high = *config.clip_high;
  if (config.overlong_buffer) objective.overlong_buffer = *config.overlong_buffer;
  if (config.dynamic_sampling != config::Choose::kAuto)
    objective.dynamic_sampling = config.dynamic_sampling == config::Choose::kYes;
  objective.dual_clip = config.dual_clip;
  (objective.learns_values ? objective.reward_kl : objective.kl) = config.kl;
  return objective;
}

std::vector<double> advantages(std::span<const double> rewards, Baseline baseline) {
  const auto count = static_cast<double>(rewards.size());
  std::vector<double> advantages(rewards.size(), 0.0);
  if (rewards.size() < 2 || !has_variance(rewards)) return advantages;
  const double mean = std::accumulate(rewards.begin(), rewards.end(), 0.0) / count;
  double scale = 1;
  if (baseline == Baseline::kGroup) {
    double squares = 0;
    for (const double reward : rewards) squares += (reward - mean) * (reward - mean);
    constexpr double kEpsilon = 1e-6;  // verl's
    scale = 1 / (std::sqrt(squares / (count - 1)) + kEpsilon);
  } else if (baseline == Baseline::kLeaveOneOut) {
    scale = count / (count - 1);  // r − (sum − r)/(n − 1)
  }
  std::ranges::transform(rewards, advantages.begin(), [&](double reward) { return (reward - mean) * scale; });
  return advantages;
}

bool has_variance(std::span<const double> rewards) {
  return std::ranges::any_of(rewards, [&](double reward) { return reward != rewards.front(); });
}

double overlong_penalty(int64_t tokens, int64_t most, int64_t buffer) {
  if (buffer <= 0) return 0;
  const double over = static_cast<double>(tokens - (most - buffer)) / static_cast<double>(buffer);
  return -std::clamp(over, 0.0, 1.0);
}

std::vector<double> token_weights(std::span<const int64_t> tokens, LossAggMode aggregate, int64_t most) {
  const auto all = static_cast<double>(std::accumulate(tokens.begin(), tokens.end(), int64_t{0}));
  const auto responses = static_cast<double>(tokens.size());
  std::vector<double> weights;
  for (const int64_t own : tokens) {
    switch (aggregate) {
      case LossAggMode::kAuto:
      case LossAggMode::kToken: weights.push_back(1); break;
      case LossAggMode::kSequence:
        weights.push_back(all / (responses * static_cast<double>(std::max<int64_t>(own, 1))));
        break;
      case LossAggMode::kConstant: weights.push_back(all / (responses * static_cast<double>(most))); break;
    }
  }
  return weights;
}

}  // namespace sluice::rl
