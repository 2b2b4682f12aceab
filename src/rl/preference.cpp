#include "rl/preference.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace sluice::rl {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// −log σ(x), without overflow.
double softplus_of_minus(double x) { return x > 0 ? std::log1p(std::exp(-x)) : -x + std::log1p(std::exp(x)); }

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

PreferenceLoss dpo(std::span<const double> gain, double beta) {
  PreferenceLoss weighed;
  const auto pairs = static_cast<double>(gain.size() / 2);
  for (size_t i = 0; i + 1 < gain.size(); i += 2) {
    const double margin = beta * (gain[i] - gain[i + 1]);
    weighed.loss += softplus_of_minus(margin) / pairs;
    weighed.reward_margin += margin / pairs;
    weighed.accuracy += (margin > 0 ? 1 : 0) / pairs;
    const double pull = beta * sigmoid(-margin);
    weighed.advantages.insert(weighed.advantages.end(), {pull, -pull});
  }
  return weighed;
}

PreferenceLoss kto(std::span<const double> gain, std::span<const double> elsewhere,
                   const config::RlConfig& config) {
  PreferenceLoss weighed;
  const double z = std::max(0.0, mean_of(elsewhere)), answers = static_cast<double>(gain.size());
  for (size_t i = 0; i < gain.size(); ++i) {
    const bool better = i % 2 == 0;
    const double sign = better ? 1 : -1;
    const double weight = better ? config.desirable_weight : config.undesirable_weight;
    const double right = sigmoid(sign * config.beta * (gain[i] - z));
    weighed.loss += weight * (1 - right) / answers;
    weighed.reward_margin += sign * config.beta * gain[i] / (answers / 2);
    weighed.accuracy += (right > 0.5 ? 1 : 0) / answers;
    weighed.advantages.push_back(sign * weight * config.beta * right * (1 - right));
  }
  return weighed;
}

}  // namespace sluice::rl
