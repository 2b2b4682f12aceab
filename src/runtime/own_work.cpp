#include "runtime/own_work.h"

#include <algorithm>

namespace sluice::runtime {

OwnWork own_work(const graph::StepGraph& graph, const StepTiming& timing, int64_t waited_ns) {
  OwnWork work;
  for (const Measurement& measured : timing.nodes) {
    const graph::Node& node = graph.nodes[static_cast<size_t>(measured.node)];
    if (!graph::is_compute_cell(node.kind) || (waited_ns < 0 && node.members.size() > 1)) continue;
    work.computed_ns += measured.end_ns - measured.start_ns;
    work.planned_ns += node.duration_ns - node.cell().ring_ns - node.cell().share_ns;
  }
  work.computed_ns = std::max<int64_t>(0, work.computed_ns - std::max<int64_t>(0, waited_ns));
  return work;
}

}  // namespace sluice::runtime
