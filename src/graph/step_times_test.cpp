#include "graph/step_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

#include "graph/build.h"
#include "graph/test_graphs.h"
#include "model/outline.h"
#include "model/parameters.h"

namespace sluice::graph {
namespace {

// Four pipelines of one rank each.
StepGraph four_ranks() {
  const model::Outline outline = model::outline_of_12_heads(4);
  const strategy::StepPlan plan =
      testing::plan_from_text("4x<1,1,1>", {"400, 200", "500", "300, 300", "350+250"}, 4);
  return build(plan, model::parameter_table(outline), testing::small_cost(outline), 4);
}

// The rank and kind whose pieces exceed their plan by most together.
struct PathExcess {
  int rank = 0;
  PathKind kind = PathKind::kHost;
  int64_t excess_ns = 0;
};
PathExcess largest_excess(const std::vector<PathPiece>& path) {
  std::map<std::pair<int, PathKind>, int64_t> excess;
  for (const PathPiece& piece : path) excess[{piece.rank, piece.kind}] += piece.excess_ns();
  const auto most =
      std::ranges::max_element(excess, {}, &std::pair<const std::pair<int, PathKind>, int64_t>::second);
  return {most->first.first, most->first.second, most->second};
}

void expect_whole(const std::vector<PathPiece>& path, const StepTimes& times) {
  int64_t end_ns = 0;
  for (const auto& of_rank : times) {
    for (const NodeTime& time : of_rank) end_ns = std::max(end_ns, time.end_ns);
  }
  ASSERT_FALSE(path.empty());
  int64_t at_ns = 0;
  for (const PathPiece& piece : path) {
    EXPECT_EQ(piece.begin_ns, at_ns);
    EXPECT_GE(piece.end_ns, piece.begin_ns);
    at_ns = piece.end_ns;
  }
  EXPECT_EQ(at_ns, end_ns);
}

TEST(CriticalPath, OfAPlanIsTheWholeStepWithoutExcess) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const testing::RandomCase random = testing::random_case(seed, {.tight = false});
    const StepGraph graph = build(random.plan, random.table, random.cost, random.world_size);
    const StepTimes times = planned_times(graph);
    const std::vector<PathPiece> path = critical_path(graph, times);
    expect_whole(path, times);
    EXPECT_EQ(path.back().end_ns, graph.makespan_ns) << seed;
    for (const PathPiece& piece : path) {
      if (piece.node < 0) continue;
      const Node& node = graph.node(piece.node);
      // Sharing an adapter takes longer than the duration says; admission is no message, so the clock may
      // have a rank wait where nothing of its own says so.
      if (!is_compute_cell(node.kind)) continue;
      EXPECT_GE(piece.excess_ns(), 0) << seed << " " << label(node);
    }
  }
}

TEST(TimesIn, AreThePlansWhereNothingDiffers) {
  const StepGraph graph = four_ranks();
  const StepTimes times = times_in(graph, {{1, 1, 1, 1}, {1, 1, 1, 1}, {0, 0, 0, 0}});
  const StepTimes planned = planned_times(graph);
  for (size_t rank = 0; rank < times.size(); ++rank) {
    for (size_t at = 0; at < times[rank].size(); ++at) {
      EXPECT_EQ(times[rank][at].reached_ns, planned[rank][at].reached_ns);
      EXPECT_EQ(times[rank][at].end_ns, planned[rank][at].end_ns);
    }
  }
}

TEST(CriticalPath, BooksTheExcessOnWhoIsSlow) {
  const StepGraph graph = four_ranks();
  for (int slow = 0; slow < 4; ++slow) {
    Reality reality{{1, 1, 1, 1}, {1, 1, 1, 1}, {0, 0, 0, 0}};
    reality.slowdown[static_cast<size_t>(slow)] = 1.8;
    const StepTimes times = times_in(graph, reality);
    const std::vector<PathPiece> path = critical_path(graph, times);
    expect_whole(path, times);
    const PathExcess most = largest_excess(path);
    EXPECT_EQ(most.rank, slow);
    EXPECT_EQ(most.kind, PathKind::kCompute);
    EXPECT_GT(most.excess_ns, graph.makespan_ns / 3);
  }
}

TEST(CriticalPath, BooksTheExcessOnHostsAndLinks) {
  const StepGraph graph = four_ranks();
  const StepTimes late = times_in(graph, {{1, 1, 1, 1}, {1, 1, 1, 1}, {0, 0, 4'000'000, 0}});
  expect_whole(critical_path(graph, late), late);
  EXPECT_EQ(largest_excess(critical_path(graph, late)).rank, 2);
  EXPECT_EQ(largest_excess(critical_path(graph, late)).kind, PathKind::kHost);
  const StepTimes far = times_in(graph, {{1, 1, 1, 1}, {1, 1, 40, 1}, {0, 0, 0, 0}});
  const PathKind kind = largest_excess(critical_path(graph, far)).kind;
  EXPECT_TRUE(kind == PathKind::kPull || kind == PathKind::kPush) << name_of(kind);
}

TEST(CriticalPath, OfTensorParallelRanksIsTheOneThatWaitsLeast) {
  const model::Outline outline = model::outline_of_12_heads(4);
  const strategy::StepPlan plan = testing::plan_from_text("1x<4,1,1>", {"600, 200"}, 4);
  const StepGraph graph = build(plan, model::parameter_table(outline), testing::small_cost(outline), 4);
  const StepTimes times = times_in(graph, {{1, 1.6, 1, 1}, {1, 1, 1, 1}, {0, 0, 0, 0}});
  EXPECT_EQ(largest_excess(critical_path(graph, times)).rank, 1);
}

TEST(Awaited, IsTheRankThatComesLast) {
  const StepGraph graph = four_ranks();
  const StepTimes times = times_in(graph, {{1, 1, 1, 2.5}, {1, 1, 1, 1}, {0, 0, 0, 0}});
  const std::vector<int64_t> awaited = awaited_ns(graph, times);
  EXPECT_EQ(std::ranges::max_element(awaited) - awaited.begin(), 3);
  EXPECT_GT(awaited[3], graph.makespan_ns / 2);
}

TEST(Align, PutsClocksThatBeganAtOtherTimesTogether) {
  const StepGraph graph = four_ranks();
  const StepTimes truth = times_in(graph, {{1, 1.3, 1, 1}, {1, 1, 1, 1}, {0, 0, 0, 0}});
  StepTimes shifted = truth;
  for (NodeTime& time : shifted[2]) {
    time.reached_ns -= 5000;
    time.end_ns -= 5000;
  }
  align(graph, shifted);
  for (size_t at = 0; at < truth[2].size(); ++at) EXPECT_EQ(shifted[2][at].end_ns, truth[2][at].end_ns);
}

}  // namespace
}  // namespace sluice::graph
