#include "published/lane_offload.h"

#include <gtest/gtest.h>

#include "cost/memory_cost.h"
#include "plan/test_models.h"

namespace sluice::published {
namespace {

constexpr int kRingLanes = 8;
constexpr int64_t kRingTokens = 1000;

// Copies to host memory at so many bytes a second.
cost::CostModel cost_with_host(int64_t bytes_per_s) {
  cost::CostModel::Options options = plan::test_cost().options();
  options.host = {0, bytes_per_s};
  return cost::CostModel(options);
}

struct Cutter {
  Cutter(OffloadRule rule, const cost::CostModel& cost, const std::vector<int64_t>& lengths)
      : reference({.cp = kRingLanes}, kRingTokens, lengths, cost, kRingLanes),
        offload(rule, reference, lengths, cost, kRingLanes) {}
  LaneReference reference;
  LaneOffload offload;
};

TEST(LaneOffload, FewestLanesAreThoseOfTheEquation) {
  const cost::CostModel cost = cost_with_host(1'000'000'000'000);
  const std::vector<int64_t> lengths = {5000, 900};
  const Cutter cutter(OffloadRule::kFewestLanes, cost, lengths);
  // Two of four layers stay: 5000 · 2 ÷ 4 tokens' worth on lanes of 1000.
  EXPECT_EQ(cutter.offload.cut(5000).lanes, 3);
  EXPECT_GT(cutter.offload.cut(5000).memory.offload_permille, 0);
  EXPECT_EQ(cutter.offload.cut(900).lanes, 1);
  EXPECT_TRUE(cutter.offload.cut(900).memory.keeps_all());
}

TEST(LaneOffload, SlowCopiesSaveNothing) {
  const cost::CostModel cost = cost_with_host(1000);
  const std::vector<int64_t> lengths = {5000};
  for (const OffloadRule rule : {OffloadRule::kNone, OffloadRule::kFewestLanes, OffloadRule::kLeastWork}) {
    const Cutter cutter(rule, cost, lengths);
    EXPECT_EQ(cutter.offload.cut(5000).lanes, 5);
    EXPECT_TRUE(cutter.offload.cut(5000).memory.keeps_all());
  }
}

// A sequence alone in its step would end latest on the fewest lanes; among many, fewer lanes save ring time.
TEST(LaneOffload, LeastWorkTakesFewerLanesWhereTheStepIsLongEnough) {
  const cost::CostModel cost = cost_with_host(1'000'000'000'000);
  const std::vector<int64_t> alone = {5000};
  const Cutter quick(OffloadRule::kLeastWork, cost, alone);
  EXPECT_EQ(quick.offload.cut(5000).lanes, 5);
  const std::vector<int64_t> many(20, 5000);
  const Cutter saving(OffloadRule::kLeastWork, cost, many);
  const LaneCut cut = saving.offload.cut(5000);
  EXPECT_LT(cut.lanes, 5);
  const plan::SchemeCost& scheme = saving.reference.scheme();
  EXPECT_LT(scheme.lane_ns(5000, cut.lanes) * cut.lanes, scheme.lane_ns(5000, 5) * 5);
}

// A lane's part beside its other micro-batches fits the device.
TEST(LaneOffload, MemoryBoundsWhatALaneTakes) {
  const cost::CostModel cost = cost_with_host(1'000'000'000'000);
  const int64_t held = cost::MemoryCost(cost, {.cp = kRingLanes}).max_len_tokens(kRingLanes);
  const std::vector<int64_t> lengths = {held * 3};
  const LaneReference reference({.cp = kRingLanes}, held, lengths, cost, kRingLanes);
  const LaneOffload offload(OffloadRule::kFewestLanes, reference, lengths, cost, kRingLanes);
  EXPECT_GE(offload.cut(held * 3).lanes, 3);
}

}  // namespace
}  // namespace sluice::published
