#include "graph/what_if.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "graph/clock.h"

namespace sluice::graph {

// Members of a cell wait for the slowest member.
int64_t makespan_at(const StepGraph& graph, std::span<const double> pace_of_rank) {
  SLUICE_ASSERT(std::ssize(pace_of_rank) == graph.world_size, "paces of other ranks");
  StepGraph slowed = graph;
  for (Node& node : slowed.nodes) {
    const bool computes = is_compute_cell(node.kind) || node.kind == NodeKind::kUpdate;
    if (!computes) continue;
    double slowest = 0;
    for (const int rank : node.members) {
      const double pace = pace_of_rank[static_cast<size_t>(rank)];
      slowest = std::max(slowest, pace > 0 ? pace : 1.0);
    }
    const int64_t waits_ns =
        is_compute_cell(node.kind) ? node.cell().cp_exchange_ns + node.cell().fsdp_ns : 0;
    const int64_t own_ns = std::max<int64_t>(0, node.duration_ns - waits_ns);
    const double planned = graph.slowdown_percent(node) / 100.0;
    node.duration_ns += std::llround(static_cast<double>(own_ns) * (slowest / planned - 1));
  }
  run_clock(slowed);
  return slowed.makespan_ns;
}

}  // namespace sluice::graph
