#include "survive/start_notices.h"

#include <gtest/gtest.h>

namespace sluice::survive {
namespace {

constexpr int64_t kMs = 1'000'000, kSecond = 1000 * kMs;

TEST(PhaseLines, ALongPhaseIsShownWithinASecondAndThenNowAndThen) {
  PhaseLines lines;
  const std::string phase = "loading 135M parameters";
  EXPECT_EQ(lines.due(phase, "", 5 * kSecond), std::nullopt);
  EXPECT_EQ(lines.due(phase, "", 5 * kSecond + 400 * kMs), std::nullopt);
  EXPECT_EQ(lines.due(phase, "0 B of 4 GiB", 5 * kSecond + 500 * kMs), phase);
  EXPECT_EQ(lines.due(phase, "1 GiB of 4 GiB", 10 * kSecond + 400 * kMs), std::nullopt);
  EXPECT_EQ(lines.due(phase, "2 GiB of 4 GiB", 16 * kSecond),
            "still " + phase + " after 11 s: 2 GiB of 4 GiB");
  EXPECT_EQ(lines.due(phase, "3 GiB of 4 GiB", 17 * kSecond), std::nullopt);
  EXPECT_EQ(lines.due(phase, "", 21 * kSecond), "still " + phase + " after 16 s") << "how far is not known";
}

TEST(PhaseLines, ShortPhasesHaveNone) {
  PhaseLines lines;
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(lines.due(i % 2 == 0 ? "planning" : "opening the device", "", i * 300 * kMs), std::nullopt);
  EXPECT_EQ(lines.due("", "", 30 * kSecond), std::nullopt);
  EXPECT_EQ(lines.due("", "", 40 * kSecond), std::nullopt);
}

TEST(PhaseLines, APhaseThatComesAgainIsShownAgain) {
  PhaseLines lines;
  for (const int64_t begin : {kSecond, 10 * kSecond}) {
    EXPECT_EQ(lines.due("planning", "", begin), std::nullopt);
    EXPECT_EQ(lines.due("planning", "", begin + kSecond), "planning");
    EXPECT_EQ(lines.due("loading", "", begin + 2 * kSecond), std::nullopt);
  }
}

TEST(Activity, ForgetsHowFarItWasWhenAnotherBeginsOrEnds) {
  Activity activity;
  const auto loading = activity.own("loading");
  const int64_t before = activity.now().serial;
  activity.progress("1 of 3");
  EXPECT_EQ(activity.now().how_far, "1 of 3");
  EXPECT_GT(activity.now().serial, before) << "a watchdog must see that it advances";
  {
    const auto waiting = activity.waiting();
    EXPECT_EQ(activity.now().how_far, "");
    activity.progress("2 of 3");
  }
  EXPECT_EQ(activity.now().how_far, "");
  EXPECT_EQ(activity.now().what, "loading");
}

TEST(StartNotices, EndsWhileNothingIsUnderWay) {
  const Activity activity;
  const StartNotices notices(activity);
}

}  // namespace
}  // namespace sluice::survive
