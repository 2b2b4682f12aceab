#include "rl/preference.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace sluice::rl {
namespace {

std::vector<double> random_gains(size_t count) {
  std::mt19937 rng(count);
  std::normal_distribution<double> normal(0, 8);
  std::vector<double> gains(count);
  for (double& gain : gains) gain = normal(rng);
  return gains;
}

// Advantages over the number that the loss averages are the loss's slopes, but for the sign.
void expect_slopes(const std::vector<double>& gains, double count,
                   const std::function<PreferenceLoss(const std::vector<double>&)>& weigh) {
  constexpr double kStep = 1e-5;
  const PreferenceLoss weighed = weigh(gains);
  ASSERT_EQ(weighed.advantages.size(), gains.size());
  for (size_t i = 0; i < gains.size(); ++i) {
    std::vector<double> up = gains, down = gains;
    up[i] += kStep;
    down[i] -= kStep;
    const double slope = (weigh(up).loss - weigh(down).loss) / (2 * kStep);
    EXPECT_NEAR(-weighed.advantages[i] / count, slope, 1e-9) << i;
  }
}

TEST(Preference, AdvantagesOfDpoAreItsSlopes) {
  for (const double beta : {0.1, 1.0}) {
    expect_slopes(random_gains(12), 6, [beta](const auto& gains) { return dpo(gains, beta); });
  }
}

TEST(Preference, AdvantagesOfKtoAreItsSlopes) {
  config::RlConfig config;
  config.beta = 0.2;
  config.desirable_weight = 1.5;
  config.undesirable_weight = 0.7;
  for (const double z : {-3.0, 0.4, 2.0}) {
    expect_slopes(random_gains(10), 10,
                  [&](const auto& gains) { return kto(gains, std::vector<double>{z}, config); });
  }
}

TEST(Preference, OfFarMarginsIsFinite) {
  EXPECT_EQ(dpo(std::vector<double>{1e6, 0}, 1).loss, 0);
  EXPECT_DOUBLE_EQ(dpo(std::vector<double>{0, 1e6}, 1).loss, 1e6);
  EXPECT_EQ(dpo(std::vector<double>{0, 1e6}, 1).advantages.front(), 1);
}

TEST(Preference, KtoAsPublished) {
  config::RlConfig config;
  config.beta = 0.1;
  // z = 2. A better answer with gain 5 costs 1 − σ(0.3), a worse one with gain 1 costs 1 − σ(0.1).
  const PreferenceLoss weighed = kto(std::vector<double>{5, 1}, std::vector<double>{1, 3}, config);
  EXPECT_NEAR(weighed.loss, (1 - 1 / (1 + std::exp(-0.3)) + 1 - 1 / (1 + std::exp(-0.1))) / 2, 1e-12);
  EXPECT_EQ(weighed.accuracy, 1);
  // A negative estimate counts as 0.
  EXPECT_EQ(kto(std::vector<double>{5, 1}, std::vector<double>{-9}, config).loss,
            kto(std::vector<double>{5, 1}, std::vector<double>{0}, config).loss);
}

}  // namespace
}  // namespace sluice::rl
