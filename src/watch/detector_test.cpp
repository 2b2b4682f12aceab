#include "watch/detector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "watch/alarm_text.h"

namespace sluice::watch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int64_t kStepNs = 1'000'000'000;

Sample paced(int64_t ppm) {
  Sample sample;
  sample[Figure::kSlowdown] = ppm;
  sample[Figure::kCompute] = 800'000'000;
  sample[Figure::kHost] = 10'000'000;
  sample[Figure::kAwaited] = 0;
  return sample;
}

Scores scores_of(const std::vector<Sample>& samples) { return watch::scores_of(Figures(samples), kStepNs); }
Scores paces(const std::vector<double>& values) { return {values, {}, {}, {}}; }

// Slowdowns of `ranks` ranks with lognormal noise; rank 3 takes `factor` times as long from step 40 on.
struct Outcome {
  int first_alarm = -1;  // in steps after it became slow
  int false_alarms = 0;
};
Outcome watched(int ranks, double noise, double factor, uint64_t seed) {
  Detector detector;
  Outcome outcome;
  for (int step = 0; step < 120; ++step) {
    std::vector<Sample> samples;
    for (int rank = 0; rank < ranks; ++rank) {
      const double own = rank == 3 && step >= 40 ? factor : 1;
      const double drift = 1 + 0.3 * std::sin(step / 5.0);  // all ranks share it
      const auto counter = static_cast<uint64_t>(step * ranks + rank);
      samples.push_back(
          paced(std::llround(1e6 * own * drift * std::exp(noise * base::random_normal(seed, 1, counter)))));
    }
    for (const Detector::Change& change : detector.add(step, scores_of(samples))) {
      if (!change.begins) continue;
      if (change.alarm.rank != 3 || step < 40) {
        ++outcome.false_alarms;
      } else if (outcome.first_alarm < 0) {
        outcome.first_alarm = step - 40 + 1;
      }
    }
  }
  return outcome;
}

TEST(Detector, FindsARankThatIsAFourthSlowerWithinTenSteps) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    for (const double noise : {0.005, 0.03, 0.06}) {
      const Outcome outcome = watched(8, noise, 1.25, seed);
      EXPECT_GT(outcome.first_alarm, 0) << seed << " " << noise;
      EXPECT_LE(outcome.first_alarm, 10) << seed << " " << noise;
      EXPECT_EQ(outcome.false_alarms, 0) << seed << " " << noise;
    }
  }
}

TEST(Detector, NamesNobodyWhereAllAreAlike) {
  int false_alarms = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (const double noise : {0.02, 0.1, 0.3}) false_alarms += watched(8, noise, 1, seed).false_alarms;
  }
  EXPECT_LE(false_alarms, 2) << "of 36,000 steps";
}

// Such a rank is beyond `slow` in most windows, but hardly in most steps.
TEST(Detector, FindsMostRanksThatAreATenthSlower) {
  int found = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Outcome outcome = watched(16, 0.03, 1.1, seed);
    EXPECT_EQ(outcome.false_alarms, 0) << seed;
    found += outcome.first_alarm > 0 ? 1 : 0;
  }
  EXPECT_GE(found, 45);
}

// The mean number of steps where a step's noise is half of the rank's slowdown.
TEST(Detector, FindsARankThatIsAFifthSlowerInMuchNoise) {
  double steps = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Outcome outcome = watched(16, 0.1, 1.2, seed);
    EXPECT_EQ(outcome.false_alarms, 0) << seed;
    ASSERT_GT(outcome.first_alarm, 0) << seed;
    steps += outcome.first_alarm / 50.0;
  }
  EXPECT_LE(steps, 19);
}

TEST(Detector, TellsOnceAndAgainWhenItIsOver) {
  Detector detector;
  int begun = 0, over = 0;
  int64_t step = 0;
  const auto steps = [&](double pace) {
    for (int i = 0; i < 40; ++i, ++step) {
      for (const Detector::Change& change : detector.add(step, paces({1, 1.01, pace, 0.99}))) {
        EXPECT_EQ(change.alarm.rank, 2);
        (change.begins ? begun : over) += 1;
      }
    }
  };
  steps(1);
  steps(1.5);
  ASSERT_EQ(detector.alarms().size(), 1U);
  EXPECT_EQ(detector.alarms()[0].rank, 2);
  EXPECT_EQ(detector.alarms()[0].cause, Cause::kSlowdown);
  EXPECT_GE(detector.alarms()[0].since, 33);
  EXPECT_LE(detector.alarms()[0].since, 40);
  EXPECT_NEAR(detector.slowdowns()[2], 1.5, 1e-9);
  steps(1);
  EXPECT_THAT(detector.alarms(), IsEmpty());
  EXPECT_EQ(begun, 1);
  EXPECT_EQ(over, 1);
  detector.add(step, paces({1, 1}));  // a rank was lost
  EXPECT_THAT(detector.slowdowns(), ElementsAre(0, 0));
}

// Waiting for a rank is attributed to what makes it late, or to its link if nothing else does.
TEST(Detector, NamesTheCause) {
  const auto cause_of = [](const Sample& odd) {
    Detector detector;
    std::vector<Sample> samples(8, paced(1'000'000));
    samples[5] = odd;
    const std::vector<Sample> alike(8, paced(1'000'000));
    for (int step = 0; step < 40; ++step) detector.add(step, scores_of(alike));
    for (int step = 40; step < 52; ++step) detector.add(step, scores_of(samples));
    EXPECT_EQ(detector.alarms().size(), 1U);
    EXPECT_EQ(detector.alarms().at(0).rank, 5);
    return detector.alarms().at(0).cause;
  };
  Sample slow = paced(1'500'000);
  slow[Figure::kCompute] = 1'200'000'000;
  slow[Figure::kAwaited] = 390'000'000;
  EXPECT_EQ(cause_of(slow), Cause::kSlowdown);
  Sample late = paced(1'000'000);
  late[Figure::kHost] = 300'000'000;
  late[Figure::kAwaited] = 290'000'000;
  EXPECT_EQ(cause_of(late), Cause::kHost);
  Sample far = paced(1'000'000);
  far[Figure::kAwaited] = 290'000'000;
  EXPECT_EQ(cause_of(far), Cause::kLink);
}

// A suspicion delays alarms of later causes, but does not end an alarm that has begun.
TEST(Detector, TellsAnEarlierCauseFirst) {
  const auto both = [](double pace, double link) {
    return Scores{std::vector<double>{1, pace, 1}, {}, {}, std::vector<double>{1, link, 1}};
  };
  Detector suspected;
  for (int step = 0; step < 40; ++step) suspected.add(step, both(1, 1));
  for (int step = 40; step < 50; ++step) suspected.add(step, both(1.11, step < 47 ? 1 : 1.4));
  EXPECT_THAT(suspected.alarms(), IsEmpty());
  Detector told;
  for (int step = 0; step < 40; ++step) told.add(step, both(1, 1));
  for (int step = 40; step < 60; ++step) told.add(step, both(1, 1.4));
  ASSERT_EQ(told.alarms().size(), 1U);
  for (int step = 60; step < 66; ++step) EXPECT_TRUE(told.add(step, both(1.11, 1.4)).empty());
  EXPECT_EQ(told.alarms()[0].cause, Cause::kLink);
}

// A small lasting deviation is an error of the calibration and counts as the baseline; a large one does not.
TEST(Detector, KnowsWhatARankWasLikeFromTheStart) {
  for (const auto& [always, alarms] : {std::pair(1.17, 0U), std::pair(1.5, 1U)}) {
    Detector detector;
    for (int step = 0; step < 100; ++step) detector.add(step, paces({1, always, 0.99, 1.01}));
    EXPECT_EQ(detector.alarms().size(), alarms) << always;
  }
  Detector detector;
  for (int step = 0; step < 40; ++step) detector.add(step, paces({1, 1.17, 0.99, 1.01}));
  for (int step = 40; step < 52; ++step) detector.add(step, paces({1, 1.17 * 1.25, 0.99, 1.01}));
  EXPECT_EQ(detector.alarms().size(), 1U);
}

TEST(Detector, MissesWhatIsNotKnown) {
  std::vector<Sample> samples(4);
  const Scores scores = scores_of(samples);
  Detector detector;
  for (int step = 0; step < 20; ++step) EXPECT_TRUE(detector.add(step, scores).empty());
  EXPECT_THAT(detector.alarms(), IsEmpty());
}

TEST(AlarmText, SaysWhatARankCostsAndWhatSpeaksForIt) {
  const Detector::Change change{{.rank = 1, .cause = Cause::kSlowdown, .since = 4, .score = 1.31}, true};
  std::vector<Sample> samples(4, paced(1'000'000));
  for (Sample& sample : samples) sample[Figure::kProcessors] = 990'000;
  EXPECT_THAT(to_text(change, Figures(samples)),
              HasSubstr("rank 1 is slow: for what it computes it has taken 1.31 times"));
  EXPECT_THAT(to_text(change, Figures(samples)), Not(HasSubstr("by their plan")));
  EXPECT_THAT(to_text(change, Figures(samples)), Not(HasSubstr("processors")));
  samples[1][Figure::kProcessors] = 680'000;
  const std::string words = to_text(change, Figures(samples), {1'040'000'000, 812'000'000});
  EXPECT_THAT(words,
              HasSubstr("which wait for it, since step 5; steps like this one take 1.04 s by their plan, "
                        "812.00 ms were it like the others; processors that its process kept busy are 0.68, "
                        "the others' 0.99: look"));
  EXPECT_THAT(to_text({change.alarm, false}, Figures(samples)), HasSubstr("rank 1 is no longer slow"));
}

}  // namespace
}  // namespace sluice::watch
