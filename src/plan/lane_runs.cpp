#include "plan/lane_runs.h"

namespace sluice::plan {
namespace {

// Whether two lanes lie on the same node, on all stages and TP ranks.
bool share_node(const strategy::Pipeline& pipeline, int a, int b, int gpus_per_node) {
  for (int stage = 0; stage < pipeline.scheme.pp; ++stage) {
    for (int t = 0; t < pipeline.scheme.tp; ++t) {
      if (pipeline.rank_of(stage, a, t) / gpus_per_node != pipeline.rank_of(stage, b, t) / gpus_per_node) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

std::vector<LaneRun> node_runs(const strategy::Pipeline& pipeline, int gpus_per_node) {
  std::vector<LaneRun> runs = {{0, 1}};
  for (int lane = 1; lane < pipeline.scheme.cp; ++lane) {
    if (share_node(pipeline, lane - 1, lane, gpus_per_node)) {
      ++runs.back().lanes;
    } else {
      runs.push_back({lane, 1});
    }
  }
  return runs;
}

}  // namespace sluice::plan
