#include "published/lane_groups.h"

#include <gtest/gtest.h>

#include "cost/shipped.h"
#include "strategy/pass.h"

namespace sluice::published {
namespace {

const cost::CostModel& a800_32b() {
  static const cost::CostModel cost(cost::shipped("a800-32b").options);
  return cost;
}

TEST(LaneGroups, PacksAreDealtInTurnsAndPassesAreMicroBatches) {
  const StaticGroups choice{
      .program = {.scheme = {.cp = 16, .fsdp = 16}}, .group_lanes = 4, .micro_batch_tokens = 100};
  // Packs of 400 tokens: five of one sequence each, two with 200 each.
  const std::vector<int64_t> lengths = {400, 399, 398, 397, 396, 200, 199};
  const strategy::StepPlan plan = static_groups_plan(choice, lengths, a800_32b(), 16);
  ASSERT_NO_THROW(strategy::validate(plan, 16));
  const std::vector<strategy::PipelineMicroBatch>& micro_batches = plan.pipelines.front().micro_batches;
  ASSERT_EQ(micro_batches.size(), 6u);
  for (size_t u = 0; u < micro_batches.size(); ++u) {
    EXPECT_EQ(micro_batches[u].pass, static_cast<int>(u / 4));
    EXPECT_EQ(micro_batches[u].first_lane, 4 * static_cast<int>(u % 4));
    EXPECT_EQ(micro_batches[u].exchange, strategy::Exchange::kHeads);
  }
  EXPECT_EQ(micro_batches.back().sequences.size(), 2u);
}

TEST(LaneGroups, GroupsWaitForOneAnotherOnlyWhereAllShare) {
  StaticGroups choice{
      .program = {.scheme = {.cp = 16, .fsdp = 16}}, .group_lanes = 8, .micro_batch_tokens = 1000};
  const cost::CostModel cost(cost::shipped("a800-7b").options);  // a whole copy of it fits
  // One group has 8,000 tokens and then 100, the other 7,990 and then 90.
  const std::vector<int64_t> lengths = {8000, 7990, 100, 90};
  const auto ns = [&] { return static_groups_plan(choice, lengths, cost, 16).estimated_ns; };
  const int64_t together_ns = ns();
  choice.program.scheme.fsdp = 1;
  EXPECT_LT(ns(), together_ns);
  choice.program.scheme.fsdp = 8;  // a node's: each group alone, gathers over its fast links
  EXPECT_LT(ns(), together_ns);
}

TEST(LaneGroups, HeadsAndSharingDecideWhatALaneHolds) {
  const GroupProgram shared{.scheme = {.cp = 64, .fsdp = 64}};
  EXPECT_GT(capacity_tokens(shared, 1, a800_32b(), 64), 1000);
  EXPECT_LT(capacity_tokens(shared, 8, a800_32b(), 64), capacity_tokens(shared, 1, a800_32b(), 64));
  EXPECT_EQ(capacity_tokens({.scheme = {.cp = 64}}, 1, a800_32b(), 64), 0) << "a whole copy does not fit";
  EXPECT_EQ(most_group_lanes(shared, cost::CostModel(cost::shipped("a800-13b").options), 64), 8)
      << "40 heads";
}

TEST(LaneGroups, TheBestWidthHoldsTheContext) {
  const GroupProgram program{.scheme = {.cp = 64, .fsdp = 64}};
  const std::vector<std::vector<int64_t>> batches = {std::vector<int64_t>(128, 800), {32768, 16000, 2000}};
  const auto best = best_static_groups(program, 32768, batches, a800_32b(), 64);
  ASSERT_TRUE(best);
  EXPECT_LE(tokens_on_lane(32768, best->group_lanes),
            capacity_tokens(program, best->group_lanes, a800_32b(), 64));
  EXPECT_FALSE(best_static_groups(program, 100'000'000, batches, a800_32b(), 64));
}

}  // namespace
}  // namespace sluice::published
