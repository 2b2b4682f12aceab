// laned_plan_fuzz --count N --seed S: the planner plans random batches with a random strategy whose pipelines
// have up to 5 lanes and 3 stages. Every plan becomes a step graph that the verifier proves and that runs in
// virtual time under random delays; without links its clock ends when the plan says. Exit status 1 with the
// first case that fails.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"
#include "cost/analytic.h"
#include "graph/build.h"
#include "graph/clock.h"
#include "graph_on_fake.h"
#include "model/test_outline.h"
#include "plan/planner.h"
#include "program.h"

namespace sluice::fuzz {
namespace {

using base::text;

constexpr int kMostRanks = 16;
constexpr int64_t kLongestTokens = 12'000;

struct Totals {
  int64_t nodes = 0;
  int64_t rings = 0;  // pieces of rings, one a lane
};

// On devices that hold a few thousand tokens, of nodes and, now and then, of groups of nodes.
cost::CostModel random_cost(base::Rng& rng) {
  const std::vector<int> degrees = {1, 2};
  const cost::AnalyticMemory memory{.device_bytes = rng.between(96'000'000, 200'000'000)};
  const int node_ranks = 1 << rng.between(1, 3);
  cost::Rates rates;
  std::vector<int> group_ranks;
  if (rng.below(2) == 0) {
    group_ranks.push_back(2 * node_ranks);
    rates.beyond.push_back({rates.inter_node.bytes_per_ns / 8, 4 * rates.inter_node.latency_ns});
  }
  const strategy::Topology topology(node_ranks, 1, std::move(group_ranks));
  return cost::CostModel(cost::analytic_options(model::test_outline(), rates, memory, degrees, topology));
}

strategy::Strategy random_strategy(base::Rng& rng) {
  strategy::Strategy strategy;
  int used = 0;
  for (int64_t pipelines = rng.between(1, 3); pipelines > 0; --pipelines) {
    const strategy::Scheme scheme{.tp = 1 << rng.below(2),
                                  .pp = static_cast<int>(rng.between(1, 3)),
                                  .cp = static_cast<int>(rng.between(1, 5))};
    if (used + scheme.ranks() > kMostRanks) continue;
    strategy::Pipeline pipeline{.scheme = scheme, .ranks = {}};
    for (int rank = 0; rank < scheme.ranks(); ++rank) pipeline.ranks.push_back(used++);
    strategy.pipelines.push_back(std::move(pipeline));
  }
  if (strategy.pipelines.empty()) strategy = strategy::parse_strategy("<1,2,4>", kMostRanks);
  return strategy;
}

std::vector<strategy::Sequence> random_batch(base::Rng& rng, int64_t longest) {
  std::vector<strategy::Sequence> batch;
  for (int64_t count = rng.between(1, 30); count > 0; --count) {
    const int64_t most = rng.below(4) == 0 ? longest : std::min<int64_t>(longest, 800);
    batch.push_back({.document = static_cast<int64_t>(batch.size()), .length_tokens = rng.between(2, most)});
  }
  return batch;
}

int64_t rings_of(const strategy::StepPlan& plan) {
  int64_t rings = 0;
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    for (const strategy::PipelineMicroBatch& micro_batch : pipeline.micro_batches)
      rings += micro_batch.lanes > 1 ? micro_batch.lanes : 0;
  }
  return rings;
}

void run_case(uint64_t seed, Totals& totals) {
  base::Rng rng(seed, 41);
  const cost::CostModel cost = random_cost(rng);
  const strategy::Strategy strategy = random_strategy(rng);
  const plan::Planner planner({.world_size = kMostRanks, .candidates = {strategy}}, cost);
  const int64_t longest = std::min(planner.max_len_tokens(), kLongestTokens);
  if (longest < 2) return;
  const strategy::StepPlan plan = planner.plan(static_cast<int64_t>(seed), random_batch(rng, longest));
  totals.rings += rings_of(plan);
  // Verifies what it builds.
  graph::StepGraph graph =
      graph::build(plan, model::parameter_table(model::test_outline()), cost, kMostRanks);
  totals.nodes += static_cast<int64_t>(graph.nodes.size());
  run_in_virtual_time(graph, seed);
  for (graph::Node& node : graph.nodes) {
    if (node.at() == nullptr) node.duration_ns = 0;
  }
  graph::run_clock(graph);
  require(graph.makespan_ns == plan.estimated_ns,
          text(strategy::to_text(strategy), ": the clock takes ", graph.makespan_ns, " ns, the plan ",
               plan.estimated_ns));
}

std::string summary(const Cases& cases, const Totals& totals) {
  require(totals.rings > 0, "no plan has a ring");
  return text(cases.count, " plans, ", totals.nodes, " nodes, ", totals.rings,
              " pieces of rings: proved, 0 deadlocks, as long as planned");
}

}  // namespace
}  // namespace sluice::fuzz

int main(int argc, char** argv) {
  using namespace sluice::fuzz;
  Totals totals;
  return run_program({.name = "laned_plan_fuzz",
                      .count = 300,
                      .run_case = [&](const Cases&, uint64_t seed) { run_case(seed, totals); },
                      .summary = [&](const Cases& cases) { return summary(cases, totals); }},
                     argc, argv);
}
