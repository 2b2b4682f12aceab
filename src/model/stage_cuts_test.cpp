#include "model/stage_cuts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/rng.h"

namespace sluice::model {
namespace {

using base::Interval;

std::vector<int64_t> blocks_by_stage(const StageCuts& cuts, int stages) {
  std::vector<int64_t> blocks;
  for (int stage = 0; stage < stages; ++stage) {
    const int ends = (stage == 0 ? 1 : 0) + (stage + 1 == stages ? 1 : 0);
    blocks.push_back(cuts.of_stage(stages, stage).size() - ends);
  }
  return blocks;
}

int64_t slowest(const std::vector<int64_t>& times, const StageCuts& cuts, int stages) {
  int64_t slowest = 0;
  for (int stage = 0; stage < stages; ++stage) {
    const Interval run = cuts.of_stage(stages, stage);
    int64_t time = 0;
    for (int64_t position = run.begin; position < run.end; ++position)
      time += times[static_cast<size_t>(position)];
    slowest = std::max(slowest, time);
  }
  return slowest;
}

// Tries all starts of the last of `stages`, with the others cut likewise.
int64_t brute_force(const std::vector<int64_t>& times, size_t end, int stages) {
  int64_t time = end == times.size() ? times.back() : 0;
  size_t first = end == times.size() ? end - 1 : end;
  if (stages == 1) {
    while (first > 0) time += times[--first];
    return time;
  }
  int64_t best = std::numeric_limits<int64_t>::max();
  while (first > static_cast<size_t>(stages)) {
    time += times[--first];
    best = std::min(best, std::max(time, brute_force(times, first, stages - 1)));
  }
  return best;
}

TEST(StageCuts, NoCutHasAFasterSlowestStage) {
  base::Rng rng(3);
  for (int round = 0; round < 400; ++round) {
    std::vector<int64_t> times;
    const int64_t blocks = rng.between(1, 9), longest = rng.between(0, 20);
    for (int64_t i = 0; i < blocks + 2; ++i) times.push_back(rng.between(0, longest));
    if (rng.below(3) == 0) times.back() *= 4;
    const StageCuts cuts(times);
    for (int stages = 1; stages <= blocks; ++stages) {
      int64_t next = 0;
      for (const int64_t own : blocks_by_stage(cuts, stages)) EXPECT_GE(own, 1);
      for (int stage = 0; stage < stages; ++stage) {
        EXPECT_EQ(cuts.of_stage(stages, stage).begin, next);
        next = cuts.of_stage(stages, stage).end;
      }
      EXPECT_EQ(next, blocks + 2);
      EXPECT_EQ(slowest(times, cuts, stages), brute_force(times, times.size(), stages));
    }
  }
}

TEST(StageCuts, AHeadTakesThePlaceOfBlocks) {
  std::vector<int64_t> times(20, 10);
  times.front() = 1;
  times.back() = 48;
  EXPECT_THAT(blocks_by_stage(StageCuts(times), 2), testing::ElementsAre(11, 7));
  EXPECT_THAT(blocks_by_stage(StageCuts(times), 4), testing::ElementsAre(5, 6, 6, 1));
}

TEST(StageCuts, LayersThatTakeLongerAreFewer) {
  // Five windowed layers for each layer with full attention, which takes as long as six windowed ones.
  std::vector<int64_t> times = {0, 1, 1, 1, 1, 1, 6, 1, 1, 1, 1, 1, 6, 0};
  EXPECT_THAT(blocks_by_stage(StageCuts(times), 2), testing::ElementsAre(6, 6));
  EXPECT_THAT(blocks_by_stage(StageCuts(times), 4), testing::ElementsAre(5, 1, 5, 1));
}

}  // namespace
}  // namespace sluice::model
