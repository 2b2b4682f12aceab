// Neighbouring lanes of a pipeline, and which of them lie inside one node.
#pragma once

#include <vector>

#include "strategy/topology.h"

namespace sluice::plan {

// Lanes [first, first + lanes).
struct LaneRun {
  int first = 0;
  int lanes = 1;
  int end() const { return first + lanes; }
};

// The longest runs of lanes, in order, whose stages each lie inside one node.
std::vector<LaneRun> node_runs(const strategy::Pipeline& pipeline, const strategy::Topology& topology);

}  // namespace sluice::plan
