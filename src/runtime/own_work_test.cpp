#include "runtime/own_work.h"

#include <gtest/gtest.h>

#include "graph/build.h"
#include "graph/step_times.h"
#include "graph/test_graphs.h"
#include "model/outline.h"
#include "model/parameters.h"
#include "runtime/local_program.h"

namespace sluice::runtime {
namespace {

namespace graphs = graph::testing;

// Two pipelines of one rank: rank 0 with long sequences, rank 1 with short ones and less to do.
graph::StepGraph two_ranks(int pace_percent = 100) {
  const model::Outline outline = model::outline_of_12_heads(4);
  strategy::StepPlan plan = graphs::plan_from_text("2x<1,1,1>", {"4000, 4000", "300+300, 200"}, 2);
  plan.pipelines[0].pipeline.slowdown_percent = pace_percent;
  return graph::build(plan, model::parameter_table(outline),
                      graphs::small_cost(outline, {.device_bytes = 1 << 28}), 2);
}

// A rank's measurements under `reality`; `awaited`: the rank that transfers and rounds waited for.
std::vector<Measurement> measured_in(const graph::StepGraph& graph, const graph::Reality& reality,
                                     size_t rank, int awaited) {
  const graph::StepTimes times = graph::times_in(graph, reality);
  std::vector<Measurement> measured;
  for (size_t at = 0; at < graph.programs[rank].size(); ++at) {
    const graph::Node& node = graph.node(graph.programs[rank][at]);
    const graph::NodeTime& time = times[rank][at];
    const bool cell = graph::is_compute_cell(node.kind);
    measured.push_back({.node = node.id,
                        .start_ns = time.reached_ns,
                        .end_ns = time.end_ns,
                        .waited_ns = cell ? time.waited_ns : 0,
                        .awaited_rank = node.members.size() > 1 && !cell ? awaited : -1});
  }
  return measured;
}

const graph::Reality kAsPlanned{{1, 1}, {1, 1}, {0, 0}};

TEST(OwnWork, IsWhatWasPlannedAsPlanned) {
  const graph::StepGraph graph = two_ranks();
  for (const int rank : {0, 1}) {
    const LocalProgram program(graph, rank);
    const StepTiming timing =
        program.timing(measured_in(graph, kAsPlanned, static_cast<size_t>(rank), 1 - rank));
    const OwnWork own = own_work(graph, timing);
    EXPECT_EQ(own.cells().slowdown_ppm(), 1'000'000);
    EXPECT_GT(own.cells().planned_ns, 0);
    EXPECT_GT(own.update.planned_ns, 0);
    EXPECT_EQ(own.copies.slowdown_ppm(), 0) << "nothing is offloaded";
  }
}

TEST(OwnWork, TellsAttentionFromProducts) {
  const graph::StepGraph graph = two_ranks();
  const auto own = [&](int rank) {
    const LocalProgram program(graph, rank);
    return own_work(graph,
                    program.timing(measured_in(graph, kAsPlanned, static_cast<size_t>(rank), 1 - rank)));
  };
  EXPECT_GT(own(0).attention.planned_ns, own(0).gemms.planned_ns / 2) << "0.01 · 4000 beside 10 a token";
  EXPECT_EQ(own(1).attention.planned_ns, 0);
}

TEST(OwnWork, IsOfRanksAsTheyArePriced) {
  for (const int percent : {100, 200}) {
    const graph::StepGraph graph = two_ranks(percent);
    const double takes = 2.0 / (percent / 100.0);  // times the planned duration
    const StepTiming timing =
        LocalProgram(graph, 0).timing(measured_in(graph, {{takes, 1}, {1, 1}, {0, 0}}, 0, 1));
    EXPECT_NEAR(static_cast<double>(own_work(graph, timing).cells().slowdown_ppm()), 2e6, 2e4) << percent;
  }
}

TEST(StepTiming, EveryMomentIsComputedWaitedOrOverhead) {
  const graph::StepGraph graph = two_ranks();
  const StepTiming busy = LocalProgram(graph, 0).timing(measured_in(graph, kAsPlanned, 0, 1));
  const StepTiming idle = LocalProgram(graph, 1).timing(measured_in(graph, kAsPlanned, 1, 0));
  for (const StepTiming& timing : {busy, idle}) EXPECT_EQ(timing.overhead_ns(), 0);
  EXPECT_GT(idle.stalled[WaitCause::kPush], graph.makespan_ns / 4) << "for gradients of the other";
  EXPECT_GT(idle.stalled[WaitCause::kPull], 0);
  EXPECT_EQ(idle.stalled[WaitCause::kStage], 0);
  int64_t for_the_other = 0;
  for (const auto& [rank, waited_ns] : idle.stalled_for) {
    EXPECT_EQ(rank, 0);
    for_the_other += waited_ns;
  }
  EXPECT_GE(for_the_other, idle.stalled[WaitCause::kPush]);
  EXPECT_LE(for_the_other, idle.stalled.sum());
}

TEST(StepTiming, AWaitForALateRankIsForThatRank) {
  const graph::StepGraph graph = two_ranks();
  const StepTiming timing =
      LocalProgram(graph, 0).timing(measured_in(graph, {{1, 1}, {1, 1}, {0, 5'000'000}}, 0, 1));
  ASSERT_TRUE(timing.stalled_for.contains(1));
  EXPECT_GT(timing.stalled_for.at(1), 4'000'000);
  EXPECT_GT(timing.stalled[WaitCause::kPull], 4'000'000);
}

}  // namespace
}  // namespace sluice::runtime
