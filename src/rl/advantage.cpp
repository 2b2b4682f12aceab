#include "rl/advantage.h"

#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace sluice::rl {

TokenAdvantages generalised_advantages(std::span<const double> rewards, std::span<const double> values,
                                       double gamma, double lambda) {
  SLUICE_ASSERT(rewards.size() == values.size(),
                base::text(rewards.size(), " rewards for ", values.size(), " values"));
  TokenAdvantages found{.advantages = std::vector<double>(rewards.size()),
                        .returns = std::vector<double>(rewards.size())};
  double next_advantage = 0, next_value = 0;
  for (size_t t = rewards.size(); t-- > 0;) {
    const double delta = rewards[t] + gamma * next_value - values[t];
    next_advantage = delta + gamma * lambda * next_advantage;
    next_value = values[t];
    found.advantages[t] = next_advantage;
    found.returns[t] = next_advantage + values[t];
  }
  return found;
}

std::vector<double> token_rewards(double reward, std::span<const double> old,
                                  std::span<const double> reference, size_t tokens, double kl) {
  std::vector<double> rewards(tokens);
  if (tokens == 0) return rewards;
  for (size_t t = 0; t < tokens && !reference.empty(); ++t) rewards[t] = -kl * (old[t] - reference[t]);
  rewards.back() += reward;
  return rewards;
}

void whiten(std::span<std::vector<double>* const> lists) {
  double sum = 0, squares = 0, count = 0;
  for (const std::vector<double>* list : lists) {
    for (const double value : *list) sum += value;
    count += static_cast<double>(list->size());
  }
  if (count == 0) return;
  const double mean = sum / count;
  for (const std::vector<double>* list : lists) {
    for (const double value : *list) squares += (value - mean) * (value - mean);
  }
  constexpr double kEpsilon = 1e-8;  // TRL's and verl's
  const double scale = count > 1 ? 1 / std::sqrt(squares / (count - 1) + kEpsilon) : 0;
  for (std::vector<double>* list : lists) {
    for (double& value : *list) value = (value - mean) * scale;
  }
}

}  // namespace sluice::rl
