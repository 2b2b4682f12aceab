#include "session/slow_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "cost/analytic.h"
#include "graph/build.h"
#include "graph/what_if.h"
#include "model/parameters.h"
#include "model/test_outline.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::session {
namespace {

using strategy::parse_strategy;
using testing::ElementsAre;

constexpr int kPacedWorld = 8;

cost::CostModel cost_model(int64_t device_bytes) {
  const std::vector<int> degrees = {1, 2, 4};
  return cost::CostModel(cost::analytic_options(model::test_outline(4), {}, {.device_bytes = device_bytes},
                                                degrees, kPacedWorld));
}

plan::Planner planner_of(const std::vector<std::string>& texts, int64_t device_bytes = 512'000'000) {
  plan::PlannerOptions options{.world_size = kPacedWorld};
  for (const std::string& text : texts) options.candidates.push_back(parse_strategy(text, kPacedWorld));
  return {std::move(options), cost_model(device_bytes)};
}

std::vector<int> paces(int slow, int percent) {
  std::vector<int> all(kPacedWorld, 100);
  all[static_cast<size_t>(slow)] = percent;
  return all;
}

std::vector<strategy::Sequence> batch(uint64_t seed, int count, int64_t most) {
  base::Rng rng(seed, 5);
  std::vector<strategy::Sequence> sequences;
  for (int i = 0; i < count; ++i)
    sequences.push_back(
        {.document = i, .length_tokens = rng.between(8, rng.below(4) == 0 ? most : most / 6)});
  return sequences;
}

TEST(SlowRanks, AreAloneInTheirPipelines) {
  const std::vector<strategy::Strategy> found = strategies_around(
      paces(5, 200), {parse_strategy("<1,1,8>", kPacedWorld), parse_strategy("2x<1,2,2>", kPacedWorld),
                      parse_strategy("4x<2,1,1>", kPacedWorld)});
  std::vector<std::string> texts;
  for (const strategy::Strategy& strategy : found) {
    texts.push_back(to_text(strategy));
    EXPECT_NO_THROW(strategy::validate(strategy, kPacedWorld));
    EXPECT_EQ(strategy.ranks(), kPacedWorld);
  }
  EXPECT_THAT(texts, ElementsAre("8x<1,1,1>", "1x<1,1,7> + 1x<1,1,1>", "1x<1,2,2> + 1x<1,2,1> + 2x<1,1,1>",
                                 "2x<2,1,1> + 2x<1,1,1> + 1x<2,1,1>"));
  for (const size_t plain : {0, 1, 2}) EXPECT_THAT(found[plain].pipelines.back().ranks, ElementsAre(5));
  EXPECT_TRUE(strategies_around(std::vector<int>(kPacedWorld, 100), {}).empty());
  EXPECT_TRUE(strategies_around(std::vector<int>(kPacedWorld, 150), {}).empty()) << "nobody is faster";
}

// The groups in which the strategy's ranks communicate.
std::set<std::vector<int>> groups_of(const strategy::Strategy& strategy) {
  std::set<std::vector<int>> groups;
  for (const strategy::Pipeline& pipeline : strategy.pipelines) {
    const strategy::Scheme& scheme = pipeline.scheme;
    for (int stage = 0; stage < scheme.pp; ++stage) {
      for (int lane = 0; lane < scheme.cp; ++lane) {
        if (scheme.tp > 1) groups.insert(pipeline.tp_group(stage, lane));
        for (int t = 0; t < scheme.tp && scheme.fsdp > 1; ++t)
          groups.insert(pipeline.fsdp_group(stage, lane, t));
      }
    }
  }
  return groups;
}

// The slow rank's lanes leave without a new communicator for all TP degrees and share groups of candidates.
TEST(SlowRanks, LeaveTensorParallelAndSharedLanesWithTheirGroups) {
  struct Case {
    std::string candidate, stay, part;
  };
  for (const Case& each :
       std::vector<Case>{{"<2,1,4>", "1x<2,1,3> + 1x<2,1,1>", "1x<2,1,3> + 2x<1,1,1>"},
                         {"<1,1,8,4>", "2x<1,1,4,4>", "1x<1,1,4,4> + 4x<1,1,1>"},
                         {"<1,1,8,2>", "1x<1,1,6,2> + 1x<1,1,2,2>", "1x<1,1,6,2> + 2x<1,1,1>"},
                         {"<1,2,4,2>", "2x<1,2,2,2>", "1x<1,2,2,2> + 4x<1,1,1>"},
                         {"<2,2,2>", "2x<2,2,1>", "1x<2,2,1> + 4x<1,1,1>"},
                         {"<1,1,8,4,2>", "2x<1,1,4,4,2>", "1x<1,1,4,4,2> + 4x<1,1,1>"}}) {
    const strategy::Strategy candidate = parse_strategy(each.candidate, kPacedWorld);
    const std::set<std::vector<int>> known = groups_of(candidate);
    std::set<std::string> texts;
    for (const strategy::Strategy& strategy : strategies_around(paces(2, 170), {candidate})) {
      texts.insert(to_text(strategy));
      EXPECT_NO_THROW(strategy::validate(strategy, kPacedWorld));
      for (const std::vector<int>& group : groups_of(strategy))
        EXPECT_TRUE(known.contains(group)) << to_text(strategy) << " of " << each.candidate;
      int beside = 0;  // ranks in pipelines that the slow rank slows down
      for (const strategy::Pipeline& pipeline : strategy::with_slowdowns(strategy, paces(2, 170)).pipelines)
        beside += pipeline.slowdown_percent > 100 ? static_cast<int>(pipeline.ranks.size()) : 0;
      EXPECT_LT(beside, kPacedWorld) << to_text(strategy);
    }
    EXPECT_TRUE(texts.contains(each.stay)) << each.candidate << ": " << testing::PrintToString(texts);
    EXPECT_TRUE(texts.contains(each.part)) << each.candidate << ": " << testing::PrintToString(texts);
  }
}

// The schedule, the lower bound and the graph's time agree for any slowdowns.
TEST(SlowRanks, PlansAreTimedAtTheirPaces) {
  const std::vector<std::string> texts = {"8x<1,1,1>", "<1,1,8>", "2x<1,2,2>", "2x<2,1,1> + 4x<1,1,1>",
                                          "<1,1,8,8>"};
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const plan::Planner priced = planner_of(texts);
    base::Rng rng(seed, 9);
    std::vector<int> pace(kPacedWorld, 100);
    for (int& percent : pace) percent = rng.below(3) == 0 ? static_cast<int>(100 + rng.between(1, 150)) : 100;
    const plan::Planner planner = decorated(priced, slow_rank_candidates(pace));
    const strategy::StepPlan plan = planner.plan(3, batch(seed, 24, 2000));
    strategy::validate(plan, kPacedWorld);
    int64_t longest_ns = 0;
    for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
      int slowest = 0;
      for (const int rank : pipeline.pipeline.ranks)
        slowest = std::max(slowest, pace[static_cast<size_t>(rank)]);
      EXPECT_EQ(pipeline.pipeline.slowdown_percent, slowest);
      const auto load = schedule::pipeline_load(pipeline, planner.cost(), kPacedWorld);
      longest_ns = std::max(longest_ns, schedule::schedule_pipeline(load).makespan_ns);
    }
    EXPECT_EQ(plan.estimated_ns, longest_ns) << seed;
    EXPECT_LE(plan.lower_bound_ns, plan.estimated_ns) << seed;
    const auto table = model::parameter_table(planner.cost().options().model);
    const graph::StepGraph graph = graph::build(plan, table, planner.cost(), kPacedWorld);
    // The clock for these slowdowns gives the planned time again, since they were planned for.
    std::vector<double> ratios;
    for (const int percent : pace) ratios.push_back(percent / 100.0);
    const int64_t asked_ns = graph::makespan_at(graph, ratios);
    EXPECT_LE(asked_ns, graph.makespan_ns + graph.makespan_ns / 100) << seed;
  }
}

TEST(SlowRanks, OneAtHalfSpeedAmongEightCostsItsShare) {
  int64_t alike_ns = 0, planned_ns = 0, unplanned_ns = 0;
  const plan::Planner priced = planner_of({"<1,1,8>", "8x<1,1,1>", "2x<1,1,4>"});
  const auto table = model::parameter_table(priced.cost().options().model);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto sequences = batch(seed, 64, 1500);
    const graph::StepGraph alike = graph::build(priced.plan(0, sequences), table, priced.cost(), kPacedWorld);
    std::vector<double> half(kPacedWorld, 1);
    half[seed % kPacedWorld] = 2;
    alike_ns += alike.makespan_ns;
    unplanned_ns += graph::makespan_at(alike, half);
    const plan::Planner planner =
        decorated(priced, slow_rank_candidates(paces(static_cast<int>(seed % kPacedWorld), 200)));
    planned_ns += graph::build(planner.plan(0, sequences), table, planner.cost(), kPacedWorld).makespan_ns;
  }
  EXPECT_GT(unplanned_ns, alike_ns * 3 / 2);
  EXPECT_LT(planned_ns, alike_ns * 110 / 100) << "8/7.5 is 1.067";
}

TEST(SlowRanks, AFixedCandidateStaysTheOnlyOne) {
  plan::PlannerOptions options{.world_size = kPacedWorld};
  options.candidates = {parse_strategy("8x<1,1,1>", kPacedWorld), parse_strategy("<1,1,8>", kPacedWorld)};
  options.selection = plan::Selection::kFixed;
  options.fixed_candidate = 1;
  const plan::Planner planner =
      decorated(plan::Planner(options, cost_model(512'000'000)), slow_rank_candidates(paces(2, 150)));
  EXPECT_EQ(planner.options().candidates.size(), 2U);
  EXPECT_EQ(planner.options().candidates[1].pipelines[0].slowdown_percent, 150);
}

}  // namespace
}  // namespace sluice::session
