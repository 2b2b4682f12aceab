#include "graph/step_graph.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"

namespace sluice::graph {

using base::text;

std::vector<int> StepGraph::in_order() const {
  std::vector<int> ids(nodes.size(), -1);
  for (const Node& node : nodes) {
    SLUICE_ASSERT(node.seq >= 0 && node.seq < static_cast<int64_t>(nodes.size()),
                  text("node '", label(node), "' has seq ", node.seq));
    ids[static_cast<size_t>(node.seq)] = node.id;
  }
  return ids;
}

uint64_t hash(const StepGraph& graph) {
  base::CanonicalBytes bytes;
  bytes.add(graph.world_size).add(graph.step).add(static_cast<int64_t>(graph.nodes.size()));
  for (const Node& node : graph.nodes) {
    bytes.add(node.seq).add(static_cast<int64_t>(node.kind)).add(node.bytes);
    const uint64_t members = base::hash_bytes(node.members.data(), node.members.size() * sizeof(int));
    bytes.add(static_cast<int64_t>(members));
  }
  return bytes.hash();
}

}  // namespace sluice::graph
