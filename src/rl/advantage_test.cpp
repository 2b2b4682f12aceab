#include "rl/advantage.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/rng.h"

namespace sluice::rl {
namespace {

std::vector<double> random_numbers(base::Rng& random, size_t count) {
  std::vector<double> numbers;
  for (size_t i = 0; i < count; ++i) numbers.push_back(static_cast<double>(random.between(-1000, 1000)) / 300);
  return numbers;
}

TEST(Advantage, IsTheSumOfLaterSurprises) {
  base::Rng random(5);
  for (const double gamma : {1.0, 0.9}) {
    for (const double lambda : {0.0, 0.95, 1.0}) {
      const std::vector<double> rewards = random_numbers(random, 7), values = random_numbers(random, 7);
      const TokenAdvantages found = generalised_advantages(rewards, values, gamma, lambda);
      for (size_t t = 0; t < rewards.size(); ++t) {
        double expected = 0;
        for (size_t k = t; k < rewards.size(); ++k) {
          const double next = k + 1 < values.size() ? values[k + 1] : 0;
          expected += std::pow(gamma * lambda, static_cast<double>(k - t)) *
                      (rewards[k] + gamma * next - values[k]);
        }
        EXPECT_NEAR(found.advantages[t], expected, 1e-12);
        EXPECT_NEAR(found.returns[t], expected + values[t], 1e-12);
      }
    }
  }
}

TEST(Advantage, WithLambdaOneReturnsAreWhatCame) {
  const std::vector<double> rewards{0, -0.5, 2}, values{9, -4, 1};
  const TokenAdvantages found = generalised_advantages(rewards, values, 1, 1);
  EXPECT_NEAR(found.returns[0], 1.5, 1e-12);
  EXPECT_NEAR(found.returns[1], 1.5, 1e-12);
  EXPECT_NEAR(found.returns[2], 2, 1e-12);
}

TEST(Advantage, NoTokensHaveNone) {
  EXPECT_TRUE(generalised_advantages({}, {}, 1, 0.95).advantages.empty());
  EXPECT_TRUE(token_rewards(3, {}, {}, 0, 0.1).empty());
}

TEST(Advantage, TheLastTokenHasTheReward) {
  const std::vector<double> old{-1, -2}, reference{-1.5, -1};
  const std::vector<double> rewards = token_rewards(3, old, reference, 2, 0.1);
  EXPECT_NEAR(rewards[0], -0.05, 1e-15);
  EXPECT_NEAR(rewards[1], 3.1, 1e-15);
  EXPECT_EQ(token_rewards(3, {}, {}, 2, 0.1), (std::vector<double>{0, 3}));
}

TEST(Advantage, WhiteningIsOverAllLists) {
  std::vector<double> a{1, 2, 3}, b{10}, none;
  std::vector<double>* const lists[] = {&a, &none, &b};
  whiten(lists);
  EXPECT_NEAR(a[0] + a[1] + a[2] + b[0], 0, 1e-12);
  EXPECT_NEAR((a[0] * a[0] + a[1] * a[1] + a[2] * a[2] + b[0] * b[0]) / 3, 1, 1e-8);
  EXPECT_LT(a[0], a[1]);
}

TEST(Advantage, EqualNumbersBecomeNothing) {
  std::vector<double> equal{2, 2}, one{7}, none;
  std::vector<double>* const two[] = {&equal};
  whiten(two);
  EXPECT_EQ(equal, (std::vector<double>{0, 0}));
  std::vector<double>* const single[] = {&one, &none};
  whiten(single);
  EXPECT_EQ(one, std::vector<double>{0});
}

}  // namespace
}  // namespace sluice::rl
