#include "study/baseline_cost.h"

#include <gtest/gtest.h>

#include "cost/shipped.h"
#include "study/test_inputs.h"

namespace sluice::study {
namespace {

constexpr strategy::Scheme kOneRank{};

TEST(UlyssesCost, TableWithoutTheRowDerivesItFromTheFewestTpRanks) {
  const cost::CostModel published(cost::shipped("a800-7b").options);
  const cost::CostModel derived = ulysses_cost(published, {.world_size = 8});
  // <1,2>, <1,4> and <1,8> are there; a·PP is 2.74, 3.82 and 3.77 ps: the median is <1,8>'s.
  const cost::Quadratic row = published.options().scheme_times.at({1, 8}).stage;
  EXPECT_EQ(derived.stage_times(kOneRank, 0), (cost::Quadratic{row.a * 8, row.b * 8, row.c_ns * 8}));
  EXPECT_EQ(derived.schemes(8), std::vector<strategy::Scheme>{kOneRank});
}

TEST(UlyssesCost, MeasuredLayersBecomeTheRow) {
  const SystemInputs inputs = test_inputs();
  const cost::CostModel derived = ulysses_cost(inputs.cost, {.world_size = 8});
  EXPECT_EQ(derived.stage_times(kOneRank, 0), inputs.cost.stage_times(kOneRank, 0));
  EXPECT_EQ(derived.schemes(8), std::vector<strategy::Scheme>{kOneRank});
}

TEST(UlyssesCost, RecomputeTakesATimesThirdMoreAndHoldsMore) {
  const cost::CostModel published(cost::shipped("a800-7b").options);
  const cost::CostModel kept = ulysses_cost(published, {.world_size = 8});
  const cost::CostModel again = ulysses_cost(published, {.world_size = 8, .recompute = true});
  EXPECT_NEAR(static_cast<double>(again.stage_times(kOneRank, 0).b),
              static_cast<double>(kept.stage_times(kOneRank, 0).b) * 4 / 3, 4);
  EXPECT_GT(again.max_len_tokens(kOneRank, 8), 3 * kept.max_len_tokens(kOneRank, 8));
}

TEST(UlyssesCost, EveryStageOfZeroHoldsMore) {
  const cost::CostModel published(cost::shipped("a800-13b").options);
  int64_t held = 0;
  for (const ZeroStage zero : {ZeroStage::kOne, ZeroStage::kTwo, ZeroStage::kThree}) {
    const int64_t tokens =
        ulysses_cost(published, {.world_size = 16, .zero = zero}).max_len_tokens(kOneRank, 16);
    EXPECT_GT(tokens, held);
    held = tokens;
  }
}

TEST(UlyssesCost, ZeroGathersTwiceAndScattersOnceInAMicroBatch) {
  const cost::CostModel published(cost::shipped("a800-13b").options);
  const auto times = [&](ZeroStage zero) { return zero_times(published, {.world_size = 16, .zero = zero}); };
  EXPECT_EQ(times(ZeroStage::kOne).later_ns, 0);
  EXPECT_EQ(times(ZeroStage::kTwo).first_ns, 0);  // push
  const int64_t pass_ns = times(ZeroStage::kTwo).later_ns;
  EXPECT_EQ(times(ZeroStage::kThree).first_ns, pass_ns);  // beside pull and push
  EXPECT_NEAR(static_cast<double>(times(ZeroStage::kThree).later_ns), 3.0 * static_cast<double>(pass_ns),
              1e5);
}

TEST(UlyssesCost, GroupsDivideTheHeads) {
  EXPECT_EQ(most_ulysses_ranks(cost::CostModel(cost::shipped("a800-13b").options), 32), 8);  // 40 heads
  EXPECT_EQ(most_ulysses_ranks(cost::CostModel(cost::shipped("a800-32b").options), 32), 32);
}

}  // namespace
}  // namespace sluice::study
