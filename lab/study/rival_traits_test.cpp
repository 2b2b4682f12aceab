#include "study/rival_traits.h"

#include <gtest/gtest.h>

#include "cost/memory_cost.h"
#include "cost/shipped.h"
#include "study/test_inputs.h"

namespace sluice::study {
namespace {

constexpr strategy::Scheme kOneRank{};

TEST(RivalTraits, RecomputeTakesAForwardMoreAndHoldsMore) {
  for (const cost::CostModel& kept :
       {cost::CostModel(cost::shipped("a800-7b").options), test_inputs().cost}) {
    const cost::CostModel again = full_recompute(kept);
    cost::Quadratic expected = kept.stage_times(kOneRank, 0);
    expected += kept.cell_times(kOneRank, cost::CellKind::kForward, kept.program().blocks());
    EXPECT_EQ(again.stage_times(kOneRank, 0), expected);
    EXPECT_GT(cost::MemoryCost(again, kOneRank).max_len_tokens(8),
              2 * cost::MemoryCost(kept, kOneRank).max_len_tokens(8));
  }
}

TEST(RivalTraits, EveryStageOfZeroHoldsMore) {
  const cost::CostModel published(cost::shipped("a800-13b").options);
  int64_t held = 0;
  for (const Sharding sharding : {Sharding::kZero1, Sharding::kZero2, Sharding::kZero3}) {
    const cost::CostModel cost = sharded_cost(published, sharding, false, 16);
    const auto program = sharded_program(sharding, {}, strategy::Exchange::kHeads, cost, 16);
    const int64_t tokens = published::capacity_tokens(program, 1, cost, 16);
    EXPECT_GT(tokens, held) << name_of(sharding);
    held = tokens;
  }
  const cost::CostModel copied = sharded_cost(published, Sharding::kHsdp, false, 16);
  const auto program = sharded_program(Sharding::kHsdp, {}, strategy::Exchange::kRing, copied, 16);
  EXPECT_EQ(program.scheme.fsdp, 8);
  EXPECT_LT(published::capacity_tokens(program, 1, copied, 16), held);
}

TEST(RivalTraits, StayUnderOtherPricesAndConditions) {
  const cost::CostModel cost = test_inputs().cost;
  EXPECT_FALSE(traits_of(cost).one_backward_cell);
  const cost::CostModel rival = one_backward_cell(with_traits(cost, {.dispatch_waits = true}));
  for (const cost::CostModel& same :
       {rival, rival.under({.recompute_permille = 1000}), rival.with(rival.options())}) {
    EXPECT_TRUE(traits_of(same).one_backward_cell);
    EXPECT_TRUE(traits_of(same).dispatch_waits);
    EXPECT_EQ(same.cell_times({.pp = 2}, cost::CellKind::kBackwardWeight, {0, 1}), cost::Quadratic{});
  }
  // Rows that wait for travel take all of its time; the runtime's take what their products do not hide.
  EXPECT_EQ(rival.options().execution->exposed_dispatch(80, 100), 80);
  EXPECT_EQ(cost.options().execution->exposed_dispatch(80, 100), 20);
}

TEST(RivalTraits, OnlyZero2GathersOutsideItsPasses) {
  const cost::CostModel published(cost::shipped("a800-13b").options);
  for (const Sharding sharding : {Sharding::kZero1, Sharding::kZero2, Sharding::kZero3}) {
    const cost::CostModel cost = sharded_cost(published, sharding, false, 16);
    const auto program = sharded_program(sharding, {}, strategy::Exchange::kHeads, cost, 16);
    EXPECT_EQ(gather_once_ns(sharding, program, cost) > 0, sharding == Sharding::kZero2);
  }
}

}  // namespace
}  // namespace sluice::study
