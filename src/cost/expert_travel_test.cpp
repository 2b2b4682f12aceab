#include "cost/expert_travel.h"

#include <gtest/gtest.h>

#include <vector>

#include "cost/analytic.h"
#include "cost/memory_cost.h"
#include "cost/share_cost.h"
#include "strategy/share_runs.h"

namespace sluice::cost {
namespace {

model::Shape shape_with_experts() {
  model::Shape shape = model::named_shape("llama-7b");
  shape.layers = 4;
  shape.experts = {.count = 16, .per_token = 4, .hidden = 1024};
  return shape;
}

CostModel cost_on(int gpus_per_node) {
  const AnalyticMemory memory{.device_bytes = int64_t{80} << 30, .element_bytes = 2};
  const std::vector<int> degrees = {1, 2};
  Rates rates;
  rates.intra_node = {.bytes_per_ns = 200, .latency_ns = 5e3};
  rates.inter_node = {.bytes_per_ns = 20, .latency_ns = 2e4};
  return CostModel(analytic_options(shape_with_experts(), rates, memory, degrees, gpus_per_node));
}

ExpertTravel travel_of(int gpus_per_node, const strategy::Scheme& scheme) {
  const CostModel cost = cost_on(gpus_per_node);
  const CostModel::Options& options = cost.options();
  return expert_travel(options.shape, options.memory.element_bytes, scheme,
                       {options.intra, options.inter, options.topology});
}

// Of 4 visits among 16 experts none is of a lane's 8 with probability (8·7·6·5) ÷ (16·15·14·13).
TEST(VisitedLanes, AreThoseOfRandomVisits) {
  EXPECT_EQ(visited_lanes_ppm(16, 4, 1), 1'000'000);
  EXPECT_NEAR(static_cast<double>(visited_lanes_ppm(16, 4, 2)), 1e6 * (1 - 1680.0 / 43680), 5);
  EXPECT_NEAR(static_cast<double>(visited_lanes_ppm(16, 4, 16)), 250'000, 5);
  EXPECT_EQ(visited_lanes_ppm(8, 8, 4), 1'000'000);
}

TEST(ExpertTravel, IsOfTheRowsThatLeaveALane) {
  const strategy::Scheme scheme{.cp = 8, .share = 8, .experts = 4};
  const ExpertTravel travel = travel_of(8, scheme);
  const double rows = 3 * static_cast<double>(visited_lanes_ppm(16, 4, 4)) / 1e6;
  const double row_ns = 4096 * 2 / 200.0;
  const double fixed = 1.0 / static_cast<double>(int64_t{1} << Quadratic::kFractionBits);
  EXPECT_NEAR(static_cast<double>(travel.forward) * fixed, 2 * rows * row_ns, 1e-3);
  EXPECT_NEAR(static_cast<double>(travel.backward) * fixed, 3 * rows * row_ns, 1e-3);
  // Between nodes as many rows, over a slower link.
  const ExpertTravel between = travel_of(1, scheme);
  EXPECT_NEAR(static_cast<double>(between.forward), 10 * static_cast<double>(travel.forward),
              static_cast<double>(travel.forward) * 1e-3);
  EXPECT_EQ(travel_of(8, {.cp = 8, .share = 8}).forward, 0);
}

TEST(DividedExperts, TakeLongerTheMoreLanesRowsVisit) {
  const CostModel cost = cost_on(8);
  const base::Interval blocks = cost.program().blocks();
  int64_t before = 0;
  for (const int experts : {1, 2, 4, 8}) {
    const strategy::Scheme scheme{.cp = 8, .share = 8, .experts = experts};
    int64_t sum_ns = 0;
    for (const CellKind kind : {CellKind::kForward, CellKind::kBackward})
      sum_ns += cost.cell_ns(scheme, kind, blocks, Work{.tokens = 8192});
    EXPECT_GT(sum_ns, before) << experts;
    before = sum_ns;
  }
  EXPECT_FALSE(cost.splits_backward({.pp = 2, .cp = 8, .share = 8, .experts = 2}));
}

// Keeping less of visits costs their products again, and none but rivals keep rows that travelled.
TEST(DividedExperts, MakeAgainWhatIsNotKept) {
  const CostModel cost = cost_on(8);
  const strategy::Scheme scheme{.cp = 8, .share = 8, .experts = 8};
  const auto backward_b = [&](const CostModel& of) {
    return of.cell_times(scheme, CellKind::kBackward, of.program().blocks()).b;
  };
  CostModel::Options options = cost.options();
  options.share_traits.keeps_travelled = true;
  const CostModel keeping(options), recomputing = cost.under({.recompute_permille = 1000}),
                                    visiting_again = cost.under({.visits_again = true});
  EXPECT_LT(backward_b(keeping), backward_b(cost));
  EXPECT_LT(backward_b(cost), backward_b(visiting_again));
  EXPECT_LT(backward_b(visiting_again), backward_b(recomputing));
  EXPECT_LT(MemoryCost(visiting_again, scheme).held_bytes_per_token(),
            MemoryCost(cost, scheme).held_bytes_per_token());
  EXPECT_EQ(MemoryCost(visiting_again, {.cp = 8}).held_bytes_per_token(),
            MemoryCost(cost, {.cp = 8}).held_bytes_per_token());
  EXPECT_GT(MemoryCost(keeping, scheme).held_bytes_per_token(),
            MemoryCost(cost, scheme).held_bytes_per_token());
  EXPECT_EQ(keeping.cell_times(scheme, CellKind::kForward, cost.program().blocks()),
            cost.cell_times(scheme, CellKind::kForward, cost.program().blocks()));
}

// As data parallelism holds them: only experts are divided, and nothing is at hand for a while.
TEST(DividedExperts, LeaveAllElseWholeWhereItIsNotShared) {
  const CostModel cost = cost_on(8);
  const strategy::Scheme scheme{.cp = 8, .share = 8, .experts = 8};
  CostModel::Options options = cost.options();
  options.share_traits.holds_whole = true;
  const CostModel whole(options);
  EXPECT_EQ(MemoryCost(whole, scheme).gathered_bytes(CellKind::kBackward, cost.program().blocks()), 0);
  const ShareCost sharing(whole, scheme, strategy::share_runs(scheme, 8));
  for (int64_t position = 0; position < cost.program().size(); ++position)
    EXPECT_EQ(sharing.at(position), ShareTimes{});
  EXPECT_GT(MemoryCost(whole, scheme).fixed_bytes(8), MemoryCost(cost, scheme).fixed_bytes(8));
  EXPECT_LT(MemoryCost(whole, scheme).fixed_bytes(8), MemoryCost(whole, {.cp = 8}).fixed_bytes(8));
}

// Of a lane that has its experts to itself nothing of them is gathered; what is kept of visits is as much.
TEST(DividedExperts, LeaveLessAtHand) {
  const CostModel cost = cost_on(8);
  const auto memory = [&](int experts) {
    return MemoryCost(cost, {.cp = 8, .share = 8, .experts = experts});
  };
  const auto window = [&](int experts) {
    return memory(experts).gathered_bytes(CellKind::kBackward, cost.program().blocks());
  };
  EXPECT_GT(window(1), 2 * window(4));
  EXPECT_GT(window(4), window(8));
  EXPECT_EQ(memory(8).held_bytes_per_token(), memory(1).held_bytes_per_token());
}

}  // namespace
}  // namespace sluice::cost
