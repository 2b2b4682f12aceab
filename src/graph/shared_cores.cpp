#include "graph/shared_cores.h"

#include <algorithm>
#include <map>

namespace sluice::graph {

int64_t makespan_on_cores_ns(const StepGraph& graph, int ranks, int cores) {
  std::map<int64_t, int64_t> more_at;  // change of the number of computing ranks, by time
  for (const Node& node : graph.nodes) {
    if (stream_of(node.kind) != Stream::kCompute) continue;
    more_at[node.start_ns] += std::ssize(node.members);
    more_at[node.end_ns] -= std::ssize(node.members);
  }
  const int64_t whole = int64_t{graph.world_size} * ranks;
  int64_t saved_ns = 0, computing = 0, since_ns = 0;
  for (const auto& [at_ns, more] : more_at) {
    const int64_t part = std::max(computing * ranks, int64_t{graph.world_size} * cores);
    if (computing > 0 && part < whole) saved_ns += (at_ns - since_ns) * (whole - part) / whole;
    computing += more;
    since_ns = at_ns;
  }
  return graph.makespan_ns - saved_ns;
}

}  // namespace sluice::graph
