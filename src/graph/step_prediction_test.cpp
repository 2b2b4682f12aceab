#include "graph/step_prediction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/rng.h"
#include "graph/shared_cores.h"
#include "graph/step_times.h"
#include "graph/test_graphs.h"
#include "graph/what_if.h"
#include "model/outline.h"

namespace sluice::graph {
namespace {

StepGraph step_of(const std::string& strategy, const std::vector<std::string>& batches, int ranks) {
  const model::Outline outline = model::outline_of_12_heads(4);
  return build(testing::plan_from_text(strategy, batches, ranks), model::parameter_table(outline),
               testing::small_cost(outline, {.latency_ns = 1}), ranks);
}

// The mean of makespans over many draws that share nothing with the prediction's.
double brute_force(const StepGraph& graph, double deviation) {
  constexpr int kDraws = 4000;
  double sum = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    std::vector<double> paces;
    for (int rank = 0; rank < graph.world_size; ++rank)
      paces.push_back(
          1 + deviation * base::random_normal(99, static_cast<uint64_t>(draw), static_cast<uint64_t>(rank)));
    sum += static_cast<double>(makespan_at(graph, paces));
  }
  return sum / kDraws / static_cast<double>(graph.makespan_ns);
}

TEST(ExpectedStretch, IsOneWithoutADeviationAndForOneRank) {
  EXPECT_EQ(expected_stretch(step_of("2x<1,1,1>", {"300", "300"}, 2), 0), 1);
  EXPECT_NEAR(expected_stretch(step_of("1x<1,1,1>", {"300"}, 1), 0.1), 1, 1e-3);
}

TEST(ExpectedStretch, OfRanksThatMeetIsTheMeanOfTheirMaximum) {
  for (const double deviation : {0.03, 0.1}) {
    const StepGraph two = step_of("2x<1,1,1>", {"3000", "3000"}, 2);
    const StepGraph four = step_of("4x<1,1,1>", {"3000", "3000", "3000", "3000"}, 4);
    const double of_two = expected_stretch(two, deviation), of_four = expected_stretch(four, deviation);
    EXPECT_NEAR(of_two, brute_force(two, deviation), 0.12 * deviation);
    EXPECT_NEAR(of_four, brute_force(four, deviation), 0.12 * deviation);
    // Expected maxima of two and four standard normal values.
    EXPECT_LT(of_two, 1 + 0.7 * deviation);
    EXPECT_GT(of_two, 1 + 0.4 * deviation);
    EXPECT_LT(of_four, 1 + 1.15 * deviation);
    EXPECT_GT(of_four, 1 + 0.8 * deviation);
  }
}

TEST(ExpectedStretch, IsSmallWhereOneRankHasMostToDo) {
  const double uneven = expected_stretch(step_of("2x<1,1,1>", {"3000", "300"}, 2), 0.05);
  const double even = expected_stretch(step_of("2x<1,1,1>", {"3000", "3000"}, 2), 0.05);
  EXPECT_LT(uneven - 1, (even - 1) / 4);
}

TEST(ExpectedStretch, OfTensorParallelRanksIsThatOfOne) {
  EXPECT_NEAR(expected_stretch(step_of("1x<2,1,1>", {"300"}, 2), 0.1), 1, 1e-3)
      << "waits inside were measured with the cells";
  EXPECT_GT(expected_stretch(step_of("1x<1,2,1>", {"300, 300, 300"}, 2), 0.1), 1.005) << "stages meet";
}

TEST(StepPrediction, StretchesStepsOfMeasuredRanksWithCoresOfTheirOwn) {
  const StepGraph graph = step_of("2x<1,1,1>", {"3000", "3000"}, 2);
  const double stretch = expected_stretch(graph, 0.05);
  const auto stretched_ns = std::llround(stretch * static_cast<double>(graph.makespan_ns));
  EXPECT_EQ(StepPrediction({.ranks = 2, .cores = 2, .measured = true}).ns(graph, 0.05), stretched_ns);
  EXPECT_EQ(StepPrediction({.ranks = 8, .measured = true}).ns(graph, 0.05), stretched_ns) << "GPUs";
  EXPECT_EQ(StepPrediction({.ranks = 2, .cores = 2, .measured = true}).ns(graph, 0), graph.makespan_ns);
  EXPECT_EQ(StepPrediction({.ranks = 2, .cores = 1, .measured = true}).ns(graph, 0.05),
            makespan_on_cores_ns(graph, 2, 1));
  EXPECT_EQ(StepPrediction({.ranks = 2, .cores = 2}).ns(graph, 0.05), graph.makespan_ns) << "analytic prices";
}

TEST(StepPrediction, FollowsTheDeviation) {
  StepPrediction prediction({.ranks = 2, .cores = 2, .measured = true});
  const StepGraph graph = step_of("2x<1,1,1>", {"3000", "3000"}, 2);
  const int64_t little_ns = prediction.ns(graph, 0.02), much_ns = prediction.ns(graph, 0.1);
  EXPECT_LT(graph.makespan_ns, little_ns);
  EXPECT_LT(little_ns, much_ns);
  EXPECT_EQ(prediction.ns(graph, 0.02), little_ns);
}

}  // namespace
}  // namespace sluice::graph
