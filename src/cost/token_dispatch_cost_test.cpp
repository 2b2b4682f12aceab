#include "cost/token_dispatch_cost.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "cost/analytic.h"
#include "cost/fsdp_cost.h"
#include "cost/memory_cost.h"
#include "model/outline.h"
#include "strategy/fsdp_runs.h"

namespace sluice::cost {
namespace {

model::Outline shape_with_experts() {
  model::Outline outline = model::named_outline("llama-7b");
  outline.layers = 4;
  outline.experts = {.count = 16, .per_token = 4, .hidden = 1024};
  return outline;
}

CostModel cost_on(int gpus_per_node) {
  const AnalyticMemory memory{.device_bytes = int64_t{80} << 30, .element_bytes = 2};
  const std::vector<int> degrees = {1, 2};
  Rates rates;
  rates.intra_node = {.bytes_per_ns = 200, .latency_ns = 5e3};
  rates.inter_node = {.bytes_per_ns = 20, .latency_ns = 2e4};
  return CostModel(analytic_options(shape_with_experts(), rates, memory, degrees, gpus_per_node));
}

TokenDispatchCost travel_of(int gpus_per_node, const strategy::Scheme& scheme) {
  const CostModel cost = cost_on(gpus_per_node);
  const CostModel::Options& options = cost.options();
  return token_dispatch_cost(options.model, options.memory.element_bytes, scheme,
                             {options.intra, options.inter, options.topology});
}

// The probability that none of 4 visits to 16 experts is to a lane's 8 is (8·7·6·5) ÷ (16·15·14·13).
TEST(VisitedLanes, AreThoseOfRandomVisits) {
  EXPECT_EQ(dispatched_lanes_ppm(16, 4, 1), 1'000'000);
  EXPECT_NEAR(static_cast<double>(dispatched_lanes_ppm(16, 4, 2)), 1e6 * (1 - 1680.0 / 43680), 5);
  EXPECT_NEAR(static_cast<double>(dispatched_lanes_ppm(16, 4, 16)), 250'000, 5);
  EXPECT_EQ(dispatched_lanes_ppm(8, 8, 4), 1'000'000);
}

TEST(TokenDispatchCost, IsOfTheRowsThatLeaveALane) {
  const strategy::Scheme scheme{.cp = 8, .fsdp = 8, .ep = 4};
  const TokenDispatchCost travel = travel_of(8, scheme);
  const double rows = 3 * static_cast<double>(dispatched_lanes_ppm(16, 4, 4)) / 1e6;
  const double row_ns = 4096 * 2 / 200.0;
  const double fixed = 1.0 / static_cast<double>(int64_t{1} << Quadratic::kFractionBits);
  EXPECT_NEAR(static_cast<double>(travel.forward) * fixed, 2 * rows * row_ns, 1e-3);
  EXPECT_NEAR(static_cast<double>(travel.backward) * fixed, 3 * rows * row_ns, 1e-3);
  // Between nodes as many rows, over a slower link.
  const TokenDispatchCost between = travel_of(1, scheme);
  EXPECT_NEAR(static_cast<double>(between.forward), 10 * static_cast<double>(travel.forward),
              static_cast<double>(travel.forward) * 1e-3);
  EXPECT_EQ(travel_of(8, {.cp = 8, .fsdp = 8}).forward, 0);
}

TEST(DividedExperts, TakeLongerTheMoreLanesRowsVisit) {
  const CostModel cost = cost_on(8);
  const base::Interval blocks = cost.program().blocks();
  int64_t before = 0;
  for (const int experts : {1, 2, 4, 8}) {
    const strategy::Scheme scheme{.cp = 8, .fsdp = 8, .ep = experts};
    int64_t sum_ns = 0;
    for (const CellKind kind : {CellKind::kForward, CellKind::kBackward})
      sum_ns += cost.cell_ns(scheme, kind, blocks, Work{.tokens = 8192});
    EXPECT_GT(sum_ns, before) << experts;
    before = sum_ns;
  }
  EXPECT_FALSE(cost.splits_backward({.pp = 2, .cp = 8, .fsdp = 8, .ep = 2}));
}

struct KeepsDispatched : Execution {
  bool keeps_dispatched() const override { return true; }
};

// Keeping less of visits costs their products again, and the runtime does not keep rows that travelled.
TEST(DividedExperts, MakeAgainWhatIsNotKept) {
  const CostModel cost = cost_on(8);
  const strategy::Scheme scheme{.cp = 8, .fsdp = 8, .ep = 8};
  const auto backward_b = [&](const CostModel& of) {
    return of.cell_times(scheme, CellKind::kBackward, of.program().blocks()).b;
  };
  CostModel::Options options = cost.options();
  options.execution = std::make_shared<KeepsDispatched>();
  const CostModel keeping(options), recomputing = cost.under({.recompute_permille = 1000}),
                                    visiting_again = cost.under({.recompute_dispatch = true});
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

struct HoldsWhole : Execution {
  int parameter_holders(const strategy::Scheme&) const override { return 1; }
};

// As data parallelism holds them: only experts are divided, and nothing is at hand for a while.
TEST(DividedExperts, LeaveAllElseWholeWhereItIsNotShared) {
  const CostModel cost = cost_on(8);
  const strategy::Scheme scheme{.cp = 8, .fsdp = 8, .ep = 8};
  CostModel::Options options = cost.options();
  options.execution = std::make_shared<HoldsWhole>();
  const CostModel whole(options);
  EXPECT_EQ(MemoryCost(whole, scheme).gathered_bytes(CellKind::kBackward, cost.program().blocks()), 0);
  const FsdpCost sharing(whole, scheme, strategy::fsdp_runs(scheme, 8));
  for (int64_t position = 0; position < cost.program().size(); ++position)
    EXPECT_EQ(sharing.at(position), FsdpTimes{});
  EXPECT_GT(MemoryCost(whole, scheme).fixed_bytes(8), MemoryCost(cost, scheme).fixed_bytes(8));
  EXPECT_LT(MemoryCost(whole, scheme).fixed_bytes(8), MemoryCost(whole, {.cp = 8}).fixed_bytes(8));
}

// A lane with experts of its own gathers none of them; its kept assignments take as much.
TEST(DividedExperts, LeaveLessAtHand) {
  const CostModel cost = cost_on(8);
  const auto memory = [&](int experts) { return MemoryCost(cost, {.cp = 8, .fsdp = 8, .ep = experts}); };
  const auto window = [&](int experts) {
    return memory(experts).gathered_bytes(CellKind::kBackward, cost.program().blocks());
  };
  EXPECT_GT(window(1), 2 * window(4));
  EXPECT_GT(window(4), window(8));
  EXPECT_EQ(memory(8).held_bytes_per_token(), memory(1).held_bytes_per_token());
}

// 2 lanes: hidden 4096, experts of 1024, 4 of 16 a token, in 2 bytes.
int64_t working(CellKind kind, int64_t tokens, int64_t rows, bool keeps_visits = false) {
  return travel_working_bytes(shape_with_experts(), 2, {.cp = 2, .fsdp = 2, .ep = 2}, kind, tokens, rows,
                              keeps_visits);
}

TEST(TravelWorkingBytes, OfAWaveAreItsRowsAndThoseOfAnExpertThatAllVisit) {
  const int64_t visits = 4 * 64 * 1000, own = 2 * 2 * 4096 * 400, routes = (4 * 8 + 16) * 1000;
  EXPECT_EQ(working(CellKind::kForward, 400, 1000),
            2 * 1000 * (2 * 4096 + 2 * 1024 + 1024 + 4096) + visits + own + routes + 2 * 16 * 4 * 400);
  // Gradients in FP32 are added up of wide copies: of rows, and of a part of gate and up.
  const int64_t copies = 4 * (4096 * 1000 + (1 << 18));
  EXPECT_EQ(working(CellKind::kBackward, 400, 1000), 2 * 1000 * (3 * 4096 + 2 * 1024 + 2 * 4096 + 1024) +
                                                         copies + visits + own + routes + 4 * 16 * 4 * 400);
}

TEST(TravelWorkingBytes, GrowWithTheWavesUnderWayAndNoFurther) {
  const int64_t most = 2048, routes = 4 * 8 + 16;  // rows of a wave, of which a lane sends half as many
  const auto of_chunks = [&](int64_t chunks) {
    return working(CellKind::kBackward, 4 * most, chunks * most) - chunks * most * routes;
  };
  const int64_t one = of_chunks(1), two = of_chunks(2), three = of_chunks(3);
  EXPECT_EQ(two - one, 2 * 2 * 4096 * (most + most / 2));  // the next one's rows and gradients, come and sent
  EXPECT_EQ(three - two, 2 * 4096 * (most + most / 2));    // results of the one before, made and coming home
  EXPECT_EQ(of_chunks(9), three);
}

TEST(TravelWorkingBytes, ALaneWithFewRowsSendsFew) {
  const int64_t most = 2048;
  EXPECT_EQ(working(CellKind::kForward, 400, 2 * most) - working(CellKind::kForward, 300, 2 * most),
            2 * 4096 * 100 + 2 * 2 * 4096 * 100 + 2 * 16 * 4 * 100);
}

// The lane keeps gate and up of 4 visits for each of its own rows, whatever routers choose.
TEST(TravelWorkingBytes, LeaveOutGateAndUpWhereTheLaneHasRoomForAll) {
  const int64_t made = 2 * 2 * 1024 * 1000;
  EXPECT_EQ(working(CellKind::kForward, 1000, 1000) - working(CellKind::kForward, 1000, 1000, true), made);
  EXPECT_EQ(working(CellKind::kForward, 999, 1000), working(CellKind::kForward, 999, 1000, true));
}

// The first wave's visits have room where all together have not: then only the last one, beside which no
// other comes, makes gate and up again.
TEST(TravelWorkingBytes, GateAndUpAreMadeBehindTheRoomForVisits) {
  const int64_t most = 2048, rows = 2 * most;
  const auto backward = [&](int64_t tokens, bool keeps) {
    return working(CellKind::kBackward, tokens, rows, keeps);
  };
  const int64_t tokens = rows - 1;
  const int64_t gate_up = 2 * 2 * 1024 * most, coming = 2 * 2 * 4096 * (most + most / 2);
  const int64_t leaving = 2 * 4096 * (most + most / 2);
  EXPECT_EQ(backward(tokens, false) - backward(tokens, true), std::min(gate_up, coming - leaving));
  // No room for the first wave's either.
  EXPECT_EQ(backward(most - 1, true), backward(most - 1, false));
  // Three waves: one between others may lie behind the room.
  EXPECT_EQ(working(CellKind::kBackward, 3 * most - 1, 3 * most, true),
            working(CellKind::kBackward, 3 * most - 1, 3 * most));
}

}  // namespace
}  // namespace sluice::cost
