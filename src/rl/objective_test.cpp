#include "rl/objective.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace sluice::rl {
namespace {

using config::Baseline;
using config::LossAggMode;
using config::RlAlgorithm;

config::RlConfig config_of(RlAlgorithm algorithm) {
  config::RlConfig config;
  config.algorithm = algorithm;
  config.max_completion_length = 1000;
  return config;
}

TEST(ObjectiveTest, AlgorithmsDecideWhatIsLeftOpen) {
  const Objective dapo = objective_of(config_of(RlAlgorithm::kDapo));
  EXPECT_EQ(dapo.clip_high, 0.28);
  EXPECT_EQ(dapo.clip_low, 0.2);
  EXPECT_TRUE(dapo.dynamic_sampling);
  EXPECT_EQ(dapo.overlong_buffer, 200);
  EXPECT_EQ(dapo.loss_agg_mode, LossAggMode::kToken);
  EXPECT_EQ(objective_of(config_of(RlAlgorithm::kGrpo)).loss_agg_mode, LossAggMode::kSequence);
  EXPECT_EQ(objective_of(config_of(RlAlgorithm::kDrGrpo)).loss_agg_mode, LossAggMode::kConstant);
  EXPECT_EQ(objective_of(config_of(RlAlgorithm::kDrGrpo)).baseline, Baseline::kMean);
  EXPECT_EQ(objective_of(config_of(RlAlgorithm::kReinforce)).baseline, Baseline::kLeaveOneOut);
}

TEST(ObjectiveTest, KeysGoBeforeTheAlgorithm) {
  config::RlConfig config = config_of(RlAlgorithm::kDapo);
  config.clip_high = 0.5;
  config.dynamic_sampling = config::Choose::kNo;
  config.overlong_buffer = 0;
  config.loss_agg_mode = LossAggMode::kSequence;
  config.baseline = Baseline::kLeaveOneOut;
  const Objective objective = objective_of(config);
  EXPECT_EQ(objective.clip_high, 0.5);
  EXPECT_FALSE(objective.dynamic_sampling);
  EXPECT_EQ(objective.overlong_buffer, 0);
  EXPECT_EQ(objective.loss_agg_mode, LossAggMode::kSequence);
  EXPECT_EQ(objective.baseline, Baseline::kLeaveOneOut);
}

TEST(ObjectiveTest, AdvantagesOfAGroup) {
  const std::vector<double> rewards{1, 0, 0, 1, 3};
  const double mean = 1, deviation = std::sqrt((0.0 + 1 + 1 + 0 + 4) / 4);  // ÷ (n − 1), as torch.std
  const std::vector<double> group = advantages(rewards, Baseline::kGroup);
  const std::vector<double> centred = advantages(rewards, Baseline::kMean);
  const std::vector<double> others = advantages(rewards, Baseline::kLeaveOneOut);
  for (size_t i = 0; i < rewards.size(); ++i) {
    EXPECT_NEAR(group[i], (rewards[i] - mean) / (deviation + 1e-6), 1e-15);
    EXPECT_NEAR(centred[i], rewards[i] - mean, 1e-15);
    double of_others = 0;
    for (size_t j = 0; j < rewards.size(); ++j) of_others += j == i ? 0 : rewards[j] / 4;
    EXPECT_NEAR(others[i], rewards[i] - of_others, 1e-15);
  }
}

TEST(ObjectiveTest, NothingIsLearntFromEqualRewardsOrOneResponse) {
  for (const Baseline baseline : {Baseline::kGroup, Baseline::kMean, Baseline::kLeaveOneOut}) {
    EXPECT_EQ(advantages(std::vector<double>{0.3, 0.3, 0.3}, baseline), (std::vector<double>{0, 0, 0}));
    EXPECT_EQ(advantages(std::vector<double>{0.7}, baseline), (std::vector<double>{0}));
  }
  EXPECT_FALSE(has_variance(std::vector<double>{1, 1}));
  EXPECT_TRUE(has_variance(std::vector<double>{1, 0}));
}

TEST(ObjectiveTest, OverlongResponsesCostUpToOne) {
  EXPECT_EQ(overlong_penalty(60, 100, 40), 0);
  EXPECT_EQ(overlong_penalty(80, 100, 40), -0.5);
  EXPECT_EQ(overlong_penalty(100, 100, 40), -1);
  EXPECT_EQ(overlong_penalty(100, 100, 0), 0);
}

// Compares weighted sums over the number of all tokens, as a step makes them, with each definition.
TEST(ObjectiveTest, WeightsMakeTheAggregateOfAStep) {
  std::mt19937 random(5);
  const std::vector<int64_t> tokens{3, 1, 17, 40};
  const int64_t all = std::accumulate(tokens.begin(), tokens.end(), int64_t{0}), most = 64;
  std::vector<std::vector<double>> losses;
  for (const int64_t count : tokens) {
    std::vector<double>& own = losses.emplace_back();
    for (int64_t i = 0; i < count; ++i) own.push_back(std::uniform_real_distribution<>(-1, 1)(random));
  }
  const auto of_step = [&](LossAggMode aggregate) {
    const std::vector<double> weights = token_weights(tokens, aggregate, most);
    double sum = 0;
    for (size_t i = 0; i < losses.size(); ++i) {
      for (const double loss : losses[i]) sum += weights[i] * loss;
    }
    return sum / static_cast<double>(all);
  };
  double by_token = 0, by_sequence = 0;
  for (const std::vector<double>& own : losses) {
    const double sum = std::accumulate(own.begin(), own.end(), 0.0);
    by_token += sum;
    by_sequence += sum / static_cast<double>(own.size());
  }
  EXPECT_NEAR(of_step(LossAggMode::kToken), by_token / static_cast<double>(all), 1e-15);
  EXPECT_NEAR(of_step(LossAggMode::kSequence), by_sequence / 4, 1e-15);
  EXPECT_NEAR(of_step(LossAggMode::kConstant), by_token / (4 * 64), 1e-15);
}

}  // namespace
}  // namespace sluice::rl
