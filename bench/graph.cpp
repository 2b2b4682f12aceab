// How long a rank takes to lower, time and prove a step graph of 1,024 ranks, by pass, and a whole simulated
// step with its timeline. Analytic costs of llama-7b on nodes of eight H200, batches of real lengths.
//
//   graph_bench [DATA_FOLDER [RUNS]]      DATA_FOLDER: bench/data
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "base/thread_time.h"
#include "cost/analytic.h"
#include "graph/build.h"
#include "graph/trace.h"
#include "graph/verifier.h"
#include "inputs.h"
#include "model/outline.h"
#include "plan/planner.h"
#include "report/time_shares.h"

namespace {

using namespace sluice;

constexpr int kRanks = 1024;
constexpr int64_t kBatchTokens = 3'200'000;
constexpr int64_t kContextTokens = 16'384;

cost::CostModel cost_model(const model::Outline& outline) {
  const strategy::Cluster cluster = strategy::cluster_preset("h200x8", kRanks / 8);
  const cost::AnalyticMemory memory{.device_bytes = cluster.device_memory_bytes / 10 * 9, .element_bytes = 2};
  const std::vector<int> degrees = {1, 2, 4, 8};
  return cost::CostModel(
      cost::analytic_options(outline, cost::rates_of(cluster), memory, degrees, cluster.gpus_per_node));
}

std::vector<strategy::Sequence> draw(const std::vector<int64_t>& lengths) {
  base::Rng rng(1, 0);
  std::vector<strategy::Sequence> sequences;
  for (int64_t tokens = 0; tokens < kBatchTokens;) {
    const int64_t length = lengths[static_cast<size_t>(rng.below(lengths.size()))];
    sequences.push_back({static_cast<int64_t>(sequences.size()), 0, length});
    tokens += length;
  }
  return sequences;
}

double fastest_ms(const std::vector<int64_t>& ns) { return static_cast<double>(std::ranges::min(ns)) / 1e6; }

// Builds once to fill the cache of link plans and to check the graph, then measures.
void measure(const std::string& text, const std::vector<strategy::Sequence>& sequences,
             const model::ParameterTable& table, const cost::CostModel& cost, int runs) {
  const plan::Planner planner({.world_size = kRanks,
                               .candidates = {strategy::parse_strategy(text, kRanks)},
                               .effort = plan::Effort::kQuick},
                              cost);
  const strategy::StepPlan plan = planner.plan(0, sequences);
  graph::LinkPlans links;
  std::vector<graph::PassTime> first;
  const graph::StepGraph checked = graph::build(plan, table, cost, kRanks, {.link_plans = &links}, &first);
  if (!graph::faults(checked, table, cost).empty()) throw base::RunError("the graph is wrong");
  std::map<std::string, std::vector<int64_t>> passes;
  std::vector<int64_t> totals;
  std::vector<int64_t> steps;
  for (int run = 0; run < runs; ++run) {
    std::vector<graph::PassTime> times;
    const int64_t start_ns = base::thread_time_ns();
    const graph::StepGraph graph = graph::build(plan, table, cost, kRanks, {.link_plans = &links}, &times);
    const int64_t built_ns = base::thread_time_ns();
    const auto records = graph::trace_records(graph);
    if (report::time_shares(graph).total_ns() != graph.makespan_ns * kRanks || records.empty())
      throw base::RunError("the timeline is wrong");
    steps.push_back(base::thread_time_ns() - start_ns);
    totals.push_back(built_ns - start_ns);
    for (const graph::PassTime& pass : times) passes[pass.name].push_back(pass.time_ns);
  }
  size_t members = 0;
  for (const graph::Node& node : checked.nodes) members += node.members.size();
  std::printf("| `%s` | %zu | %zu | %.0f |", text.c_str(), checked.nodes.size(), members,
              static_cast<double>(first.front().time_ns) / 1e6);
  for (const char* pass : {"order", "layer-parts", "tail-weights", "lower", "clock", "verify"})
    std::printf(" %.1f |", fastest_ms(passes[pass]));
  std::printf(" %.1f | %.1f |\n", fastest_ms(totals), fastest_ms(steps));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "bench/data";
  const int runs = argc > 2 ? std::atoi(argv[2]) : 9;
  const model::Outline outline = model::named_outline("llama-7b");
  const model::ParameterTable table = model::parameter_table(outline);
  const cost::CostModel cost = cost_model(outline);
  const auto sequences = draw(bench::read_lengths(folder + "/wikipedia_lengths.txt", 2, kContextTokens));
  std::printf("%s, %d ranks, %zu sequences, computing time of one thread, fastest of %d runs\n\n",
              bench::processor().c_str(), kRanks, sequences.size(), runs);
  std::printf(
      "| strategy | nodes | members | link, once, ms | order ms | layer-parts ms | tail-weights ms | lower "
      "ms | "
      "clock ms | verify ms | graph ms | graph and timeline ms |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const char* text : {"1024x<1,1,1>", "512x<2,1,1>", "128x<8,1,1>", "256x<1,4,1>", "64x<2,8,1>",
                           "16x<8,2,1> + 64x<4,2,1> + 256x<1,1,1>", "1x<1,1,1024>", "16x<2,4,8>"}) {
    measure(text, sequences, table, cost, runs);
  }
}
