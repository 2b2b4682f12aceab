// Invariants of every simulated step, tested on 1,000 random ones: nothing is faster than planning's bound,
// every sent byte is received, and every rank is busy or idle until the step ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/rng.h"
#include "graph/test_graphs.h"
#include "graph/trace.h"
#include "link/route.h"
#include "model/outline.h"
#include "plan/planner.h"
#include "report/time_shares.h"

namespace sluice::study {
namespace {

struct SimulatedRun {
  cost::CostModel cost;
  strategy::StepPlan plan;
  graph::StepGraph graph;
  model::ParameterTable table;
};

std::vector<strategy::Sequence> random_batch(base::Rng& rng, int64_t longest) {
  std::vector<strategy::Sequence> sequences;
  const int64_t count = rng.between(1, 40);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t most = rng.below(4) == 0 ? longest : std::max<int64_t>(2, longest / 8);
    sequences.push_back({i, 0, rng.between(2, most)});
  }
  return sequences;
}

// A random batch, planned over up to three random strategies with lanes and stages on nodes of few ranks.
SimulatedRun random_run(uint64_t seed) {
  base::Rng rng(seed, 5);
  const int world_size = static_cast<int>(rng.between(1, 12));
  const model::Outline outline = model::outline_of_12_heads(rng.between(4, 9), rng.below(3) == 0);
  cost::CostModel::Options options =
      graph::testing::small_cost(outline, {.gpus_per_node = static_cast<int>(rng.between(1, 8)),
                                           .device_bytes = 1'000'000'000,
                                           .latency_ns = rng.between(1, 2000)})
          .options();
  const int node_ranks = options.topology.node_ranks();
  options.topology = {node_ranks, static_cast<int>(rng.between(1, node_ranks))};
  const cost::CostModel cost(options);
  std::vector<strategy::Strategy> candidates;
  for (int64_t i = rng.between(1, 3); i > 0; --i) {
    candidates.push_back(graph::testing::random_strategy(rng, {.max_lanes = 3}, world_size));
  }
  const plan::Planner planner({.world_size = world_size, .candidates = candidates}, cost);
  SimulatedRun run{cost,
                   planner.plan(static_cast<int64_t>(seed),
                                random_batch(rng, std::min<int64_t>(2000, planner.max_len_tokens()))),
                   {},
                   model::parameter_table(outline)};
  run.graph = graph::build(run.plan, run.table, cost, world_size);
  return run;
}

void expect_streams_keep_time(const graph::StepGraph& graph) {
  std::map<std::pair<int, graph::Stream>, int64_t> free_ns;
  for (const graph::TraceRecord& record : graph::trace_records(graph)) {
    int64_t& free = free_ns[{record.rank, record.stream}];
    ASSERT_GE(record.start_ns, free) << record.label << " on rank " << record.rank;
    free = record.end_ns;
    ASSERT_LE(record.end_ns, graph.makespan_ns);
  }
  const report::TimeShares shares = report::time_shares(graph);
  ASSERT_EQ(shares.total_ns(), graph.makespan_ns * graph.world_size);
  for (const int64_t ns : {shares.compute_ns, shares.cp_exchange_ns, shares.fsdp_ns, shares.pull_push_ns,
                           shares.update_ns, shares.bubble_ns, shares.idle_ns}) {
    ASSERT_GE(ns, 0);
  }
}

int64_t argument(const graph::TraceRecord& record, const std::string& name) {
  for (const auto& [key, value] : record.arguments) {
    if (key == name) return value;
  }
  return 0;
}

// Between two stages, each micro-batch's rows of the hidden width go up once and come back once on every
// lane. Their number is that of the fullest lane, cut over the TP group's ranks. Every arrow leaves one rank
// and arrives at another.
void expect_rows_pass_between_stages(const SimulatedRun& run) {
  const cost::CostModel::Options& options = run.cost.options();
  int64_t expected_bytes = 0;
  size_t expected_arrows = 0;
  for (const strategy::PipelinePlan& pipeline : run.plan.pipelines) {
    const strategy::Scheme& scheme = pipeline.pipeline.scheme;
    for (const strategy::PipelineMicroBatch& micro_batch : pipeline.micro_batches) {
      const int64_t rows = (micro_batch.tokens() + scheme.tp - 1) / scheme.tp;
      const int arrows = 2 * (scheme.pp - 1) * scheme.tp * micro_batch.lanes;
      expected_bytes += arrows * rows * options.model.hidden() * options.memory.element_bytes;
      expected_arrows += static_cast<size_t>(arrows);
    }
  }
  std::map<int64_t, int> sender, receiver;  // by arrow
  int64_t sent_bytes = 0;
  for (const graph::TraceRecord& record : graph::trace_records(run.graph)) {
    if (record.end == graph::TraceRecord::End::kNone) continue;
    const bool sends = record.end == graph::TraceRecord::End::kSender;
    ASSERT_TRUE((sends ? sender : receiver).emplace(record.flow, record.rank).second);
    sent_bytes += sends ? argument(record, "bytes") : 0;
  }
  ASSERT_EQ(sent_bytes, expected_bytes);
  ASSERT_EQ(sender.size(), expected_arrows);
  ASSERT_EQ(receiver.size(), expected_arrows);
  for (const auto& [flow, rank] : sender) {
    ASSERT_TRUE(receiver.contains(flow)) << "arrow " << flow;
    ASSERT_NE(receiver.at(flow), rank) << "arrow " << flow;
  }
}

void expect_parameters_arrive(const SimulatedRun& run) {
  const graph::LinkPlan& links = *run.graph.links;
  std::vector<int64_t> received(static_cast<size_t>(links.world_size), 0);
  const auto rounds =
      link::round_volumes(run.table, links.layout, links.rounds, links.world_size, links.topology);
  for (size_t r = 0; r < rounds.size(); ++r) {
    int64_t balance = 0;
    for (const link::Volume* volume : {&rounds[r].inter, &rounds[r].intra, &links.pull.nics[r]}) {
      for (const int64_t elements : volume->sent) balance += elements;
      for (const int64_t elements : volume->received) balance -= elements;
      ASSERT_EQ(balance, 0) << "round " << r;
    }
    for (size_t rank = 0; rank < received.size(); ++rank) {
      received[rank] += rounds[r].inter.received[rank] + rounds[r].intra.received[rank];
    }
  }
  for (size_t rank = 0; rank < received.size(); ++rank) {
    ASSERT_EQ(received[rank],
              link::pulled_elements(run.table, links.layout, links.world_size, static_cast<int>(rank)));
  }
}

TEST(Conservation, HoldsOnRandomRuns) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const SimulatedRun run = random_run(seed);
    ASSERT_GE(run.graph.makespan_ns, run.plan.lower_bound_ns) << "seed " << seed;
    ASSERT_GE(run.graph.makespan_ns, run.plan.estimated_ns) << "seed " << seed;
    ASSERT_NO_FATAL_FAILURE(expect_streams_keep_time(run.graph)) << "seed " << seed;
    ASSERT_NO_FATAL_FAILURE(expect_rows_pass_between_stages(run)) << "seed " << seed;
    ASSERT_NO_FATAL_FAILURE(expect_parameters_arrive(run)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace sluice::study
