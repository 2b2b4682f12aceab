// The number of consecutive exchanges that a round of pull or push is cut into.
#pragma once

#include <algorithm>

#include "cost/link_buffers.h"
#include "graph/link_plan.h"

namespace sluice::graph {

// The same for all ranks, both levels and both directions.
inline int64_t link_pieces(const LinkPlan& links, size_t round) {
  const LinkPlan::Busiest& busiest = links.pull.busiest[round];
  return cost::link_pieces(
      std::max(busiest.intra_elements, busiest.inter_elements / links.topology.nic_ranks()));
}

}  // namespace sluice::graph
