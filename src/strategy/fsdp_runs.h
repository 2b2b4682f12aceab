// Hierarchical gradient sums in a share group: runs of neighbouring lanes inside a node sum first, then the
// runs' sums are added. So each node sends one sum to another node instead of one for each lane.
#pragma once

#include "strategy/strategy.h"
#include "strategy/topology.h"

namespace sluice::strategy {

// Holds for all share groups of a stage.
struct FsdpRuns {
  // The least number of a group's lanes on a node that the group reaches, over all groups and TP ranks.
  int lanes_in_node = 1;
  // Lanes of a run; divides the FSDP degree. All lanes of a group: it lies on one node, one sum is enough. 1:
  // no runs of several lanes lie inside nodes, so gradients go straight to the lanes that keep them.
  int lanes = 1;
  int level = 1;  // the highest level on which the ranks of a group meet

  // The number of further operations of the backward after which an operation's gradients are summed.
  int behind(int share) const { return lanes == 1 || lanes == share ? 1 : 2; }
  bool operator==(const FsdpRuns&) const = default;
};

// Lanes of a run for groups on several nodes, provided that pipelines fill nodes from the first rank on.
int fsdp_run_lanes(const Scheme& scheme, const Topology& topology);

// For the ranks of this pipeline as they lie on nodes.
FsdpRuns fsdp_runs(const Pipeline& pipeline, int stage, const Topology& topology);
// For the first stage of a pipeline that fills nodes from the first rank on.
FsdpRuns fsdp_runs(const Scheme& scheme, const Topology& topology);

}  // namespace sluice::strategy
