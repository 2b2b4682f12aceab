#include "run/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sluice::run {
namespace {

config::OptimizerConfig optimizer(config::Decay decay) {
  return {.lr = 1.0, .warmup_steps = 10, .decay = decay, .min_lr = 0.1};
}

TEST(LearningRate, EveryScheduleWarmsUpOnALine) {
  for (const config::Decay decay : {config::Decay::kCosine, config::Decay::kLinear, config::Decay::kConstant,
                                    config::Decay::kWsd, config::Decay::kInverseSqrt}) {
    EXPECT_DOUBLE_EQ(learning_rate(optimizer(decay), 0, 100), 0.1) << static_cast<int>(decay);
    EXPECT_DOUBLE_EQ(learning_rate(optimizer(decay), 9, 100), 1.0) << static_cast<int>(decay);
  }
}

TEST(LearningRate, DecaysEndAtTheLowestRate) {
  for (const config::Decay decay : {config::Decay::kCosine, config::Decay::kLinear, config::Decay::kWsd}) {
    EXPECT_NEAR(learning_rate(optimizer(decay), 99, 100), 0.1, 1e-12) << static_cast<int>(decay);
    EXPECT_NEAR(learning_rate(optimizer(decay), 150, 100), 0.1, 1e-12) << static_cast<int>(decay);
  }
}

TEST(LearningRate, WsdIsStableUpToItsLastSteps) {
  config::OptimizerConfig wsd = optimizer(config::Decay::kWsd);
  EXPECT_DOUBLE_EQ(learning_rate(wsd, 89, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(wsd, 90, 100), 1.0 - 0.09);
  wsd.decay_steps = 50;
  EXPECT_DOUBLE_EQ(learning_rate(wsd, 49, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(wsd, 74, 100), 0.55);
  wsd.decay_steps = 1000;  // more steps than exist: decay begins right after warm-up
  EXPECT_DOUBLE_EQ(learning_rate(wsd, 10, 100), 1.0 - 0.9 / 90);
}

TEST(LearningRate, InverseSquareRootForgetsTheEnd) {
  const config::OptimizerConfig falling = optimizer(config::Decay::kInverseSqrt);
  EXPECT_DOUBLE_EQ(learning_rate(falling, 39, 100), std::sqrt(10.0 / 40));
  EXPECT_DOUBLE_EQ(learning_rate(falling, 39, 1'000'000), std::sqrt(10.0 / 40));
  EXPECT_DOUBLE_EQ(learning_rate(falling, 99'999, 100'000), 0.1);
}

}  // namespace
}  // namespace sluice::run
