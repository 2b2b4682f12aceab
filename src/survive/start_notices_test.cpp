#include "survive/start_notices.h"

#include <gtest/gtest.h>

namespace sluice::survive {
namespace {

constexpr int64_t kMs = 1'000'000, kSecond = 1000 * kMs;

TEST(PhaseLines, ALongPhaseIsShownWithinASecondAndThenNowAndThen) {
  PhaseLines lines;
  EXPECT_EQ(lines.due("loading 135M parameters", 5 * kSecond), std::nullopt);
  EXPECT_EQ(lines.due("loading 135M parameters", 5 * kSecond + 400 * kMs), std::nullopt);
  EXPECT_EQ(lines.due("loading 135M parameters", 5 * kSecond + 500 * kMs), "loading 135M parameters");
  EXPECT_EQ(lines.due("loading 135M parameters", 7 * kSecond), std::nullopt);
  EXPECT_EQ(lines.due("loading 135M parameters", 16 * kSecond), "still loading 135M parameters after 11 s");
  EXPECT_EQ(lines.due("loading 135M parameters", 17 * kSecond), std::nullopt);
}

TEST(PhaseLines, ShortPhasesHaveNone) {
  PhaseLines lines;
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(lines.due(i % 2 == 0 ? "planning" : "opening the device", i * 300 * kMs), std::nullopt);
  EXPECT_EQ(lines.due("", 30 * kSecond), std::nullopt);
  EXPECT_EQ(lines.due("", 40 * kSecond), std::nullopt);
}

TEST(PhaseLines, APhaseThatComesAgainIsShownAgain) {
  PhaseLines lines;
  for (const int64_t begin : {kSecond, 10 * kSecond}) {
    EXPECT_EQ(lines.due("planning", begin), std::nullopt);
    EXPECT_EQ(lines.due("planning", begin + kSecond), "planning");
    EXPECT_EQ(lines.due("loading", begin + 2 * kSecond), std::nullopt);
  }
}

TEST(StartNotices, EndsWhileNothingIsUnderWay) {
  const Activity activity;
  const StartNotices notices(activity);
}

}  // namespace
}  // namespace sluice::survive
