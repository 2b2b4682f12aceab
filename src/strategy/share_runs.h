// In which runs of neighbouring lanes a share group sums gradients: first inside each run, then run by run,
// so that of each node one sum leaves for another.
#pragma once

#include "strategy/strategy.h"

namespace sluice::strategy {

// Of the share groups of a stage.
struct ShareRuns {
  // At least so many lanes of a group lie on each node that it reaches, on all TP ranks.
  int lanes_in_node = 1;
  // Divides the share. All lanes of a group: they lie on one node, so one sum is enough; 1: no runs of
  // several lie inside nodes, so gradients go straight to the lanes that hold them.
  int lanes = 1;

  // Operations behind an operation's own after which its gradients are summed.
  int behind(int share) const { return lanes == 1 || lanes == share ? 1 : 2; }
  bool operator==(const ShareRuns&) const = default;
};

// The runs of groups on several nodes, where pipelines fill nodes from the first rank on.
int share_run_lanes(const Scheme& scheme, int gpus_per_node);

// Where the pipeline's ranks lie.
ShareRuns share_runs(const Pipeline& pipeline, int stage, int gpus_per_node);
// Of the first stage of a pipeline that fills nodes from the first rank on.
ShareRuns share_runs(const Scheme& scheme, int gpus_per_node);

}  // namespace sluice::strategy
