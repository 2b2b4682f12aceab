#include "cost/fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/rng.h"

namespace sluice::cost {
namespace {

Sample sample(std::vector<int64_t> lengths, double a, double b, double c) {
  double time_ns = c;
  for (const int64_t length : lengths) {
    const auto l = static_cast<double>(length);
    time_ns += a * l * l + b * l;
  }
  return {std::move(lengths), time_ns};
}

TEST(Fit, RecoversExactCoefficients) {
  std::vector<Sample> samples;
  for (const int64_t length : {64, 256, 1024, 4096}) samples.push_back(sample({length}, 0.02, 150, 30'000));
  samples.push_back(sample({512, 512, 1024}, 0.02, 150, 30'000));
  const Fit result = fit(samples, "forward");
  EXPECT_NEAR(result.a_ns, 0.02, 1e-9);
  EXPECT_NEAR(result.b_ns, 150, 1e-5);
  EXPECT_NEAR(result.c_ns, 30'000, 1e-2);
  EXPECT_LT(result.largest_error, 1e-9);
}

TEST(Fit, WithoutAttentionThereAreNoSquares) {
  std::vector<Sample> samples;
  for (const int64_t length : {64, 256, 1024, 4096}) samples.push_back(sample({length}, 0.02, 150, 30'000));
  const Fit result = fit(samples, "forward", {.linear = true});
  EXPECT_EQ(result.a_ns, 0);
  EXPECT_GT(result.b_ns, 150);
}

TEST(Fit, CoefficientsAreNeverNegative) {
  base::Rng rng(5);
  for (int round = 0; round < 500; ++round) {
    std::vector<Sample> samples;
    for (int i = 0; i < 4; ++i) {
      samples.push_back({{rng.between(1, 5000)}, static_cast<double>(rng.between(1, 1'000'000))});
    }
    const Fit result = fit(samples, "noise");
    EXPECT_GE(result.a_ns, 0);
    EXPECT_GE(result.b_ns, 0);
    EXPECT_GE(result.c_ns, 0);
    EXPECT_GT(result.a_ns + result.b_ns + result.c_ns, 0);
  }
}

// Nearby coefficients may not have a smaller sum of Huber's losses, whose limit the best fit's errors set.
TEST(Fit, IsALocalMinimumOnNoise) {
  base::Rng rng(6);
  const auto loss = [](const Fit& fit, const std::vector<Sample>& samples, double limit) {
    double sum = 0;
    for (const Sample& s : samples) {
      const double error = std::abs(fit.of(s.lengths) / s.time_ns - 1);
      sum += error <= limit ? error * error / 2 : limit * (error - limit / 2);
    }
    return sum;
  };
  for (int round = 0; round < 100; ++round) {
    std::vector<Sample> samples;
    for (const int64_t length : {100, 400, 900, 2000, 5000}) {
      Sample s = sample({length}, 0.01, 50, 20'000);
      s.time_ns *= 0.7 + 0.6 * rng.uniform();
      samples.push_back(s);
    }
    const Fit best = fit(samples, "noise");
    std::vector<double> errors;
    for (const double residual : best.residuals) errors.push_back(std::abs(residual));
    std::ranges::sort(errors);
    const double limit = 1.345 * std::max(1e-3, 1.4826 * errors[2]);
    for (const double step : {-1e-2, 1e-2}) {
      Fit a = best, b = best, c = best;
      a.a_ns = std::max(0.0, a.a_ns + step * 0.01);
      b.b_ns = std::max(0.0, b.b_ns + step * 50);
      c.c_ns = std::max(0.0, c.c_ns + step * 20'000);
      for (const Fit& near : {a, b, c}) {
        EXPECT_LE(loss(best, samples, limit), loss(near, samples, limit) + 1e-5) << round;
      }
    }
  }
}

TEST(Fit, OutliersHardlyMoveIt) {
  base::Rng rng(8);
  std::vector<Sample> samples;
  for (int i = 0; i < 40; ++i) {
    samples.push_back(sample({rng.between(64, 8192)}, 0.02, 150, 30'000));
    samples.back().time_ns *= 0.99 + 0.02 * rng.uniform();
  }
  for (size_t i = 0; i < samples.size(); i += 10) samples[i].time_ns *= 3;  // interrupted
  const Fit result = fit(samples, "forward");
  EXPECT_NEAR(result.a_ns, 0.02, 0.05 * 0.02);
  EXPECT_NEAR(result.b_ns, 150, 0.05 * 150);
  ASSERT_EQ(result.residuals.size(), samples.size());
  EXPECT_NEAR(result.residuals[0], -2.0 / 3, 0.05);
  EXPECT_NEAR(result.residuals[1], 0, 0.03);
}

TEST(Fit, OneLengthGivesTimePerToken) {
  const Fit result = fit(std::vector<Sample>{{{100}, 5000}}, "forward");
  EXPECT_DOUBLE_EQ(result.a_ns, 0);
  EXPECT_NEAR(result.b_ns, 50, 1e-9);
  EXPECT_DOUBLE_EQ(result.c_ns, 0);
}

TEST(Fit, BadSamplesAreRefused) {
  EXPECT_THROW(fit({}, "x"), base::InputError);
  EXPECT_THROW(fit(std::vector<Sample>{{{}, 10}}, "x"), base::InputError);
  EXPECT_THROW(fit(std::vector<Sample>{{{5}, 0}}, "x"), base::InputError);
  EXPECT_THROW(fit(std::vector<Sample>{{{5}, std::numeric_limits<double>::quiet_NaN()}}, "x"),
               base::InputError);
}

}  // namespace
}  // namespace sluice::cost
