// In which runs of neighbouring lanes a share group sums gradients: first inside each run, then run by run,
// so that of each node one sum leaves for another.
#pragma once

#include "strategy/strategy.h"
#include "strategy/topology.h"

namespace sluice::strategy {

// Of the share groups of a stage.
struct FsdpRuns {
  // At least so many lanes of a group lie on each node that it reaches, on all TP ranks.
  int lanes_in_node = 1;
  // Divides the share. All lanes of a group: they lie on one node, so one sum is enough; 1: no runs of
  // several lie inside nodes, so gradients go straight to the lanes that hold them.
  int lanes = 1;
  int level = 1;  // on which the ranks of groups on several nodes meet: the highest

  // Operations behind an operation's own after which its gradients are summed.
  int behind(int share) const { return lanes == 1 || lanes == share ? 1 : 2; }
  bool operator==(const FsdpRuns&) const = default;
};

// The runs of groups on several nodes, where pipelines fill nodes from the first rank on.
int fsdp_run_lanes(const Scheme& scheme, const Topology& topology);

// Where the pipeline's ranks lie.
FsdpRuns fsdp_runs(const Pipeline& pipeline, int stage, const Topology& topology);
// Of the first stage of a pipeline that fills nodes from the first rank on.
FsdpRuns fsdp_runs(const Scheme& scheme, const Topology& topology);

}  // namespace sluice::strategy
