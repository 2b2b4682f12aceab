#include "plan/lane_runs.h"

namespace sluice::plan {
namespace {

// Whether a lane lies on the same nodes as the lane before it, on all stages and TP ranks.
bool follows_in_node(const strategy::Pipeline& pipeline, int lane, const strategy::Topology& topology) {
  for (int stage = 0; stage < pipeline.scheme.pp; ++stage) {
    for (int t = 0; t < pipeline.scheme.tp; ++t) {
      if (!topology.same_node(pipeline.rank_of(stage, lane - 1, t), pipeline.rank_of(stage, lane, t)))
        return false;
    }
  }
  return true;
}

}  // namespace

std::vector<LaneRun> node_runs(const strategy::Pipeline& pipeline, const strategy::Topology& topology) {
  std::vector<LaneRun> runs = {{0, 1}};
  for (int lane = 1; lane < pipeline.scheme.cp; ++lane) {
    if (follows_in_node(pipeline, lane, topology)) {
      ++runs.back().lanes;
    } else {
      runs.push_back({lane, 1});
    }
  }
  return runs;
}

}  // namespace sluice::plan
