#include "report/pace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"

namespace sluice::report {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(Pace, IsRelativeToTheMedianOfWhatIsKnown) {
  EXPECT_THAT(relative_paces(std::vector<int64_t>{1'000'000, 0, 2'000'000, 1'000'000}),
              ElementsAre(1, 0, 2, 1));
  EXPECT_THAT(relative_paces(std::vector<int64_t>{3'000, 2'000}), ElementsAre(1.5, 1));
  EXPECT_THAT(relative_paces(std::vector<int64_t>{0, 5, 0}), ElementsAre(0, 0, 0))
      << "nobody to compare with";
}

// Paces of `ranks` ranks with lognormal noise; rank 3 takes `factor` as long from step 30 on.
struct Outcome {
  int first_alarm = -1;  // in steps behind its slowing down
  int false_alarms = 0;
};
Outcome watched(int ranks, double noise, double factor, uint64_t seed) {
  PaceWatch watch;
  Outcome outcome;
  for (int step = 0; step < 120; ++step) {
    std::vector<int64_t> ppm;
    for (int rank = 0; rank < ranks; ++rank) {
      const double own = rank == 3 && step >= 30 ? factor : 1;
      const double drift = 1 + 0.3 * std::sin(step / 5.0);  // of all of them
      const auto counter = static_cast<uint64_t>(step * ranks + rank);
      ppm.push_back(
          std::llround(1e6 * own * drift * std::exp(noise * base::random_normal(seed, 1, counter))));
    }
    for (const PaceChange& change : watch.add(relative_paces(ppm))) {
      if (!change.slow) continue;
      if (change.rank != 3 || step < 30) {
        ++outcome.false_alarms;
      } else if (outcome.first_alarm < 0) {
        outcome.first_alarm = step - 30 + 1;
      }
    }
  }
  return outcome;
}

TEST(PaceWatch, FindsARankThatIsAFifthSlowerWithinTenSteps) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    for (const double noise : {0.005, 0.03, 0.06}) {
      const Outcome outcome = watched(8, noise, 1.25, seed);
      EXPECT_GT(outcome.first_alarm, 0) << seed << " " << noise;
      EXPECT_LE(outcome.first_alarm, 10) << seed << " " << noise;
      EXPECT_EQ(outcome.false_alarms, 0) << seed << " " << noise;
    }
  }
}

TEST(PaceWatch, NamesNobodyWhereAllAreAlike) {
  int false_alarms = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (const double noise : {0.02, 0.1, 0.3}) false_alarms += watched(8, noise, 1, seed).false_alarms;
  }
  EXPECT_LE(false_alarms, 2) << "of 36,000 steps";
}

TEST(PaceWatch, TellsOnceAndAgainWhenItIsOver) {
  PaceWatch watch;
  int slow = 0, recovered = 0;
  const auto steps = [&](double pace) {
    for (int step = 0; step < 20; ++step) {
      for (const PaceChange& change : watch.add({1, 1.01, pace, 0.99})) {
        EXPECT_EQ(change.rank, 2);
        (change.slow ? slow : recovered) += 1;
      }
    }
  };
  steps(1);
  steps(1.5);
  EXPECT_THAT(watch.slow_ranks(), ElementsAre(2));
  EXPECT_NEAR(watch.paces()[2], 1.5, 1e-9);
  steps(1);
  EXPECT_THAT(watch.slow_ranks(), ElementsAre());
  EXPECT_EQ(slow, 1);
  EXPECT_EQ(recovered, 1);
  watch.add({1, 1});  // a rank was lost
  EXPECT_THAT(watch.paces(), ElementsAre(0, 0));
}

TEST(PaceChange, SaysWhatARankCosts) {
  PaceChange change{.rank = 5, .pace = 1.31};
  EXPECT_THAT(to_text(change), HasSubstr("rank 5 is slow: for what it computes it has taken 1.31 times"));
  EXPECT_THAT(to_text(change), Not(HasSubstr("by their plan")));
  change.step_ns = 1'040'000'000;
  change.without_ns = 812'000'000;
  EXPECT_THAT(
      to_text(change),
      HasSubstr("; steps like this one take 1.04 s by their plan, 812.00 ms were it like the others: look"));
}

}  // namespace
}  // namespace sluice::report
