// The plan's micro-batches, and each node's place in them, for comparison with a graph.
#include <algorithm>

#include "graph/verifier_checks.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::graph::verifier {

using base::Interval;
using cost::CellKind;

Context::Context(const StepGraph& step_graph, const model::ParameterTable& table,
                 const cost::CostModel& cost_model)
    : graph(step_graph), cost(cost_model), program(table.program) {
  std::vector<size_t> begin(graph.plan.pipelines.size() + 1, 0);  // each pipeline's begin in `cells`
  for (const Node& node : graph.nodes) {
    if (const PassOnStage* at = node.at()) ++begin[static_cast<size_t>(at->pipeline) + 1];
  }
  for (size_t p = 1; p < begin.size(); ++p) begin[p] += begin[p - 1];
  cells.resize(begin.back());
  for (const int id : graph.in_order()) {
    const PassOnStage* at = graph.node(id).at();
    if (at == nullptr) {
      exchanges.push_back(id);
    } else {
      cells[begin[static_cast<size_t>(at->pipeline)]++] = id;
    }
  }
  for (size_t p = 0; p < graph.plan.pipelines.size(); ++p) {
    first_pass.push_back(static_cast<int>(passes.size()));
    const strategy::PipelinePlan& pipeline = graph.plan.pipelines[p];
    const strategy::Scheme& scheme = pipeline.pipeline.scheme;
    sums_behind.emplace_back(static_cast<size_t>(scheme.pp), 1);
    for (int stage = 0; scheme.fsdp > 1 && stage < scheme.pp; ++stage)
      sums_behind.back()[static_cast<size_t>(stage)] =
          strategy::fsdp_runs(pipeline.pipeline, stage, graph.links->topology).behind(scheme.fsdp);
    for (const strategy::Pass& pass : strategy::passes(pipeline)) {
      passes.push_back({static_cast<int>(p), pass.first_lane, pass.lanes, tokens_of(pipeline, pass),
                        schedule::policy_of(pass, cost), head_lanes_of(pipeline, pass)});
    }
  }
}

int Context::pass_of(const PassOnStage& at) const {
  const auto pipeline = static_cast<size_t>(at.pipeline);
  const int end =
      pipeline + 1 < first_pass.size() ? first_pass[pipeline + 1] : static_cast<int>(passes.size());
  const int micro_batch = first_pass[pipeline] + at.pass;
  if (at.pass < 0 || micro_batch >= end) return -1;
  const PlannedPass& of = passes[static_cast<size_t>(micro_batch)];
  const bool same = of.first_lane == at.lane && of.lanes == at.lanes && of.tokens == at.tokens;
  return same ? micro_batch : -1;
}

Interval Context::gathered_by(const Node& node) const {
  const Cell& cell = node.cell();
  const strategy::Scheme& scheme = pipeline(cell.pipeline).scheme;
  if (scheme.fsdp == 1) return cell.run;
  const CellKind kind = node.cell_kind();
  return graph::gathered_by(kind, cell.run, at_work(program, kind, stage_run(scheme, cell.stage)));
}

Interval Context::summed_by(const Node& node) const {
  const Cell& cell = node.cell();
  const strategy::Scheme& scheme = pipeline(cell.pipeline).scheme;
  if (scheme.fsdp == 1) return cell.run;
  const CellKind kind = node.cell_kind();
  const int behind = sums_behind[static_cast<size_t>(cell.pipeline)][static_cast<size_t>(cell.stage)];
  return graph::summed_by(kind, cell.run, at_work(program, kind, stage_run(scheme, cell.stage)), behind);
}

bool Context::runs_on(const Node& node, int micro_batch, int stage, int stages) const {
  const PlannedPass& planned = passes[static_cast<size_t>(micro_batch)];
  const strategy::Pipeline& place = pipeline(planned.pipeline);
  std::vector<int> ranks;
  for (int s = stage; s < stage + stages; ++s) {
    for (int lane = planned.first_lane; lane < planned.end_lane(); ++lane) {
      for (int t = 0; t < place.scheme.tp; ++t) ranks.push_back(place.rank_of(s, lane, t));
    }
  }
  if (!std::ranges::is_sorted(ranks)) std::ranges::sort(ranks);
  return node.members == ranks;
}

}  // namespace sluice::graph::verifier
