#include "runtime/own_work.h"

#include <algorithm>

namespace sluice::runtime {

OwnWork own_work(const graph::StepGraph& graph, const StepTiming& timing) {
  OwnWork own;
  for (const Measurement& measured : timing.nodes) {
    const graph::Node& node = graph.node(measured.node);
    MeasuredWork work{measured.end_ns - measured.start_ns, node.duration_ns};
    if (graph::is_copy(node.kind)) {
      own.copies += work;
    } else if (node.kind == graph::NodeKind::kUpdate) {
      own.update += work;
    } else if (graph::is_compute_cell(node.kind)) {
      const graph::Cell& cell = node.cell();
      work.measured_ns = std::max<int64_t>(0, work.measured_ns - measured.waited_ns);
      work.planned_ns =
          100 * (work.planned_ns - cell.cp_exchange_ns - cell.fsdp_ns) / graph.slowdown_percent(node);
      const bool attends = 200 * cell.attention_ns > work.planned_ns * graph.slowdown_percent(node);
      (attends ? own.attention : own.gemms) += work;
    }
  }
  return own;
}

}  // namespace sluice::runtime
