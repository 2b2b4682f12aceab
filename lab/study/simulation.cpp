#include "study/simulation.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "cost/model_flops.h"
#include "graph/build.h"
#include "graph/fsdp_moves.h"
#include "graph/memory.h"
#include "report/time_shares.h"
#include "session/sampling.h"

namespace sluice::study {

using base::text;

namespace {

// Trace viewers take a few hundred megabytes.
constexpr int64_t kMostTraceBytes = 200'000'000;

int64_t peak_bytes(const graph::StepGraph& graph, const cost::CostModel& cost) {
  int64_t peak = 0;
  for (const graph::RankMemory& memory : graph::predicted_memory(graph, cost)) {
    peak = std::max(peak, memory.peak_bytes);
  }
  return peak;
}

// Adds the time before the graph: moves between layouts, and earlier strategies of the step, whose ranks
// count as busy as the last strategy's.
void add_before(report::TimeShares& shares, const SystemStep& step, int64_t ranks) {
  shares.strategy_switch_ns += step.switch_ns * ranks;
  const int64_t earlier_ns = (step.before_ns - step.switch_ns) * ranks;
  const int64_t work_ns =
      shares.compute_ns + shares.cp_exchange_ns + shares.fsdp_ns + shares.bubble_ns + shares.idle_ns;
  const report::TimeShares last = shares;
  const auto share = [&](int64_t of_last_ns) {
    return static_cast<int64_t>(static_cast<__int128>(earlier_ns) * of_last_ns /
                                std::max<int64_t>(work_ns, 1));
  };
  shares.cp_exchange_ns += share(last.cp_exchange_ns);
  shares.fsdp_ns += share(last.fsdp_ns);
  shares.bubble_ns += share(last.bubble_ns);
  shares.idle_ns += share(last.idle_ns);
  shares.compute_ns += earlier_ns - share(last.cp_exchange_ns) - share(last.fsdp_ns) - share(last.bubble_ns) -
                       share(last.idle_ns);
}

// Adds the acts of other models, one after the other, in front of the update.
void add_acts(const std::vector<OtherActs::Act>& others, report::StepRecord& record) {
  if (others.empty()) return;
  const report::ActRecord update{.name = "update",
                                 .time_ns = record.time_ns,
                                 .predicted_ns = record.time_ns,
                                 .peak_bytes = record.peak_bytes,
                                 .predicted_peak_bytes = record.peak_bytes};
  for (const OtherActs::Act& act : others) {
    record.acts.push_back(act.record);
    record.time_ns += act.record.time_ns;
    record.lower_bound_ns = 0;  // known for the update alone
    record.shares += act.shares;
    record.peak_bytes = std::max(record.peak_bytes, act.record.peak_bytes);
  }
  record.acts.push_back(update);
}

report::StepRecord record_of(const corpus::Batch& batch, const SystemStep& step,
                             const graph::StepGraph& graph, const cost::CostModel& cost,
                             const std::vector<OtherActs::Act>& others,
                             std::optional<double> peak_flops_per_ns) {
  report::StepRecord record;
  record.step = batch.step;
  record.tokens = batch.tokens;
  record.sequences = static_cast<int64_t>(batch.samples.size());
  record.strategy = strategy::to_text(step.plan.strategy());
  record.fallback = step.fallback;
  record.time_ns = step.before_ns + graph.makespan_ns;
  record.lower_bound_ns = step.plan.lower_bound_ns;
  record.gap_ppm = step.plan.gap_ppm();
  record.shares = report::time_shares(graph);
  add_before(record.shares, step, graph.world_size);
  record.peak_bytes = peak_bytes(graph, cost);
  add_acts(others, record);
  record.mfu = cost::utilisation(cost::ModelFlops(cost.program(), cost.window()).of_plan(step.plan),
                                 record.time_ns, peak_flops_per_ns);
  return record;
}

report::Timeline timeline_of(const SystemStep& step, const graph::StepGraph& graph,
                             const cost::CostModel& cost) {
  report::Timeline timeline;
  timeline.title = text("step ", graph.step, ": ", strategy::to_text(step.plan.strategy()));
  timeline.step = graph.step;
  const std::vector<int> ranks = graph::traced_ranks(graph, kMostTraceBytes);
  if (static_cast<int>(ranks.size()) < graph.world_size) {
    timeline.note = text("sampled: ", ranks.size(), " of ", graph.world_size,
                         " ranks, whole nodes that lie evenly among all");
  }
  timeline.records = graph::trace_records(graph, ranks);
  const auto gathers = graph::fsdp_records(graph, cost, ranks);
  timeline.records.insert(timeline.records.end(), gathers.begin(), gathers.end());
  for (graph::TraceRecord& record : timeline.records) {
    record.start_ns += step.before_ns;
    record.end_ns += step.before_ns;
  }
  timeline.counters = graph::memory_counters(graph, cost, ranks);
  for (graph::TraceCounter& counter : timeline.counters) counter.time_ns += step.before_ns;
  for (const graph::RankMemory& memory : graph::predicted_memory(graph, cost)) {
    timeline.peak_bytes.push_back(memory.peak_bytes);
  }
  return timeline;
}

void simulate_step(System& system, const corpus::Batch& batch, const model::ParameterTable& table,
                   const SimulationOptions& options, graph::LinkPlans& links, Simulation& result) {
  const std::vector<strategy::Sequence> sequences = session::sequences_of(batch.samples);
  const SystemStep step = system.step(batch.step, sequences);
  const graph::StepGraph graph =
      graph::build(step.plan, table, system.cost(), options.world_size, {.link_plans = &links});
  if (options.explains_wire && result.run.steps.empty()) result.wire = system.wire(step);
  std::vector<OtherActs::Act> others;
  if (options.others != nullptr) others = options.others->of(step, sequences, graph, system.cost(), table);
  result.run.steps.push_back(
      record_of(batch, step, graph, system.cost(), others, options.peak_flops_per_ns));
  if (options.timeline_steps.contains(batch.step)) {
    result.timelines.push_back(timeline_of(step, graph, system.cost()));
  }
}

}  // namespace

Simulation simulate(System& system, const std::vector<corpus::Batch>& batches,
                    const model::ParameterTable& table, const SimulationOptions& options) {
  Simulation result;
  graph::LinkPlans links;
  for (const corpus::Batch& batch : batches) {
    try {
      simulate_step(system, batch, table, options, links, result);
    } catch (const base::InfeasibleError& error) {
      throw base::InfeasibleError(text("step ", batch.step, ": ", error.what()));
    }
    options.after_step();
  }
  return result;
}

}  // namespace sluice::study
