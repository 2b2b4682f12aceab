// Groups of ranks that have a communicator of their own, over all candidates, in the order in which all ranks
// make and connect them.
#pragma once

#include <set>
#include <vector>

#include "strategy/strategy.h"

namespace sluice::runtime {

// The ranks of a stage of a lane; groups of one rank, too.
std::set<std::vector<int>> tensor_parallel_groups(const std::vector<strategy::Strategy>& candidates);
// The ranks that share a shard, ascending: members of a communicator are, so they must lie in the order of
// lanes.
std::set<std::vector<int>> share_groups(const std::vector<strategy::Strategy>& candidates);

}  // namespace sluice::runtime
