// How many exchanges, one after another, move what a round of pull or push moves.
#pragma once

#include <algorithm>

#include "cost/link_buffers.h"
#include "graph/link_plan.h"

namespace sluice::graph {

// The same for all ranks, both levels and both ways.
inline int64_t link_pieces(const LinkPlan& links, size_t round) {
  const LinkPlan::Busiest& busiest = links.pull.busiest[round];
  return cost::link_pieces(
      std::max(busiest.intra_elements, busiest.inter_elements / links.topology.nic_ranks()));
}

}  // namespace sluice::graph
