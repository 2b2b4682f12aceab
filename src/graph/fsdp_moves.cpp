#include "graph/fsdp_moves.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "cost/fsdp_cost.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::graph {
namespace {

using cost::CellKind;

// The cells of passes before cuts.
class WholeCells {
 public:
  WholeCells(const StepGraph& graph, const cost::CostModel& cost) : graph_(graph), cost_(cost) {}

  struct Whole {
    base::Interval run;                 // operations that it works on
    std::vector<cost::FsdpMove> moves;  // times from its beginning
    size_t next = 0;                    // the first move that no part has taken
    int64_t past_ns = 0;                // time of its parts so far
  };
  Whole& of(const Node& node) {
    const Cell& cell = node.cell();
    const std::tuple key(cell.pipeline, cell.pass, cell.stage, node.kind);
    const auto found = known_.find(key);
    if (found != known_.end()) return found->second;
    const strategy::PipelinePlan& plan = graph_.plan.pipelines[static_cast<size_t>(cell.pipeline)];
    const strategy::Pass& pass =
        graph_.passes[static_cast<size_t>(cell.pipeline)][static_cast<size_t>(cell.pass)];
    const cost::CostModel own = cost_.under(schedule::policy_of(pass, cost_));
    const schedule::MicroBatchTimes times(plan.pipeline, own);
    const CellKind kind = node.cell_kind();
    Whole whole{.run = at_work(own.program(), kind, own.stage_run(plan.pipeline.scheme, cell.stage))};
    whole.moves = cost::pass_moves(times.fsdp_operations(plan, pass, kind, cell.stage));
    return known_.emplace(key, std::move(whole)).first->second;
  }

 private:
  const StepGraph& graph_;
  const cost::CostModel& cost_;
  std::map<std::tuple<int, int, int, NodeKind>, Whole> known_;
};

std::string name_of(const Program& program, int64_t position) {
  if (position == program.embedding()) return " E";
  if (position == program.head()) return " H";
  const int64_t block = position - program.blocks().begin;
  return " L" + std::to_string(block) + "-" + std::to_string(block + 1);
}

}  // namespace

std::vector<FsdpMove> predicted_moves(const StepGraph& graph, const cost::CostModel& cost) {
  std::vector<FsdpMove> moves;
  WholeCells cells(graph, cost);
  for (const int id : graph.in_order()) {
    const Node& node = graph.node(id);
    if (!is_compute_cell(node.kind)) continue;
    const auto pipeline = static_cast<size_t>(node.cell().pipeline);
    if (graph.plan.pipelines[pipeline].pipeline.scheme.fsdp == 1) continue;
    WholeCells::Whole& whole = cells.of(node);
    const int64_t end_ns = whole.past_ns + node.duration_ns;
    for (; whole.next < whole.moves.size() && whole.moves[whole.next].start_ns < end_ns; ++whole.next) {
      const cost::FsdpMove& move = whole.moves[whole.next];
      const int64_t operation = std::min(move.operation, whole.run.size() - 1);  // last one takes the rest
      const int64_t position =
          node.kind == NodeKind::kForward ? whole.run.begin + operation : whole.run.end - 1 - operation;
      const int64_t shift_ns = node.start_ns - whole.past_ns;
      moves.push_back({id, position, move.movement, move.start_ns + shift_ns, move.end_ns + shift_ns});
    }
    whole.past_ns = end_ns;
  }
  return moves;
}

TraceRecord trace_record(const StepGraph& graph, const Program& program, const FsdpMove& move, int rank) {
  const Node& node = graph.node(move.node);
  const std::string category = move.movement == cost::Movement::kGather ? kGather : kScatter;
  const std::string what = category + (move.movement == cost::Movement::kBetween ? " between" : "");
  return {.label = what + " " + place_of(node.cell()) + name_of(program, move.position),
          .category = category,
          .rank = rank,
          .stream = Stream::kFsdp,
          .start_ns = move.start_ns,
          .end_ns = move.end_ns,
          .arguments = {{"seq", node.seq}, {"pipeline", node.cell().pipeline}}};
}

std::vector<TraceRecord> fsdp_records(const StepGraph& graph, const cost::CostModel& cost,
                                      const std::vector<int>& ranks) {
  std::vector<TraceRecord> records;
  for (const FsdpMove& move : predicted_moves(graph, cost)) {
    for (const int rank : graph.node(move.node).members) {
      if (std::ranges::binary_search(ranks, rank))
        records.push_back(trace_record(graph, cost.program(), move, rank));
    }
  }
  return records;
}

}  // namespace sluice::graph
