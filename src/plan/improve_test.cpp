#include "plan/improve.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "plan/test_models.h"

namespace sluice::plan {
namespace {

constexpr int kWorld = 8;

struct Case {
  explicit Case(const std::string& text, int64_t device_bytes = 128'000'000)
      : cost(test_cost(device_bytes)),
        strategy(strategy::parse_strategy(text, kWorld)),
        scheme(strategy.pipelines[0].scheme, cost, kWorld),
        packing(strategy.pipelines[0], scheme, {}, {}, {}),
        improver(packing) {}

  TimedUnits timed(std::vector<strategy::Unit> units) {
    const int64_t ns = packing.timer.makespan_ns(units);
    return {.units = std::move(units), .makespan_ns = ns};
  }
  int64_t scheduled_ns(const std::vector<strategy::Unit>& units) const {
    strategy::PipelinePlan plan{.pipeline = strategy.pipelines[0],
                                .units = in_injection_order(units, scheme.scheme().cp)};
    return schedule::schedule_pipeline(schedule::pipeline_load(plan, cost, kWorld)).makespan_ns;
  }

  cost::CostModel cost;
  strategy::Strategy strategy;
  SchemeCost scheme;
  Packing packing;
  UnitImprover improver;
};

std::vector<strategy::Unit> one_by_one(const std::vector<int64_t>& lengths) {
  std::vector<strategy::Unit> units;
  for (const int64_t length : lengths)
    units.push_back({.sequences = {{static_cast<int32_t>(units.size()), length}}});
  return units;
}

std::vector<int64_t> lengths_in(const std::vector<strategy::Unit>& units) {
  std::vector<int64_t> lengths;
  for (const strategy::Unit& unit : units) {
    for (const strategy::UnitSequence& shared : unit.sequences) lengths.push_back(shared.length_tokens);
    for (const auto& lane : unit.own) {
      for (const strategy::UnitSequence& whole : lane) lengths.push_back(whole.length_tokens);
    }
  }
  std::ranges::sort(lengths);
  return lengths;
}

TEST(UnitImprover, EndsSoonerWithTheSameSequencesAndSaysWhen) {
  for (const char* text : {"<1,2,1>", "<1,3,1>", "<1,1,4>", "<1,2,2>", "<2,2,2>"}) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      Case of(text);
      base::Rng rng(seed, 71);
      std::vector<int64_t> lengths;
      for (int i = 0; i < 6; ++i) lengths.push_back(rng.between(1, of.scheme.lane_max_len_tokens() / 2));
      TimedUnits best = of.timed(one_by_one(lengths));
      const int64_t before_ns = best.makespan_ns;
      of.improver.improve(best, 20'000);
      EXPECT_LT(best.makespan_ns, before_ns) << text << ", seed " << seed;
      EXPECT_EQ(best.makespan_ns, of.scheduled_ns(best.units)) << text << ", seed " << seed;
      std::ranges::sort(lengths);
      EXPECT_EQ(lengths_in(best.units), lengths) << text << ", seed " << seed;
    }
  }
}

TEST(UnitImprover, StopsWhereItIsEnoughAndWithoutCells) {
  Case of("<1,2,2>");
  const std::vector<strategy::Unit> units = one_by_one({500, 400, 300, 200});
  TimedUnits best = of.timed(units);
  of.packing.options.enough_ns = best.makespan_ns;
  of.improver.improve(best, 20'000);
  EXPECT_EQ(best.units, units);
  of.packing.options.enough_ns = 0;
  of.improver.improve(best, 0);
  EXPECT_EQ(best.units, units);
}

TEST(UnitImprover, UnitsStayWithinTheirLanesMemory) {
  Case of("<1,2,2>", 60'000'000);
  const int64_t most = of.scheme.lane_max_len_tokens();
  TimedUnits best = of.timed(one_by_one({most, most / 2, most / 2, most / 3, most / 3, 7}));
  of.improver.improve(best, 20'000);
  for (const strategy::Unit& unit : best.units) EXPECT_LE(unit.tokens(), most);
}

// What needs no ring gets none: each lane a micro-batch of its own.
TEST(UnitImprover, TakesRingsApartThatCostMoreThanTheySave) {
  Case of("<1,1,2>");
  std::vector<strategy::Unit> rings;
  for (int i = 0; i < 4; ++i) rings.push_back({.lanes = 2, .sequences = {{i, 20}}, .ring = i});
  TimedUnits best = of.timed(std::move(rings));
  of.improver.improve(best, 20'000);
  EXPECT_LE(best.units.size(), 2U);
}

}  // namespace
}  // namespace sluice::plan
