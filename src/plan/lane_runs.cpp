#include "plan/lane_runs.h"

#include <algorithm>

namespace sluice::plan {

std::vector<LaneRun> node_runs(const strategy::Pipeline& pipeline, const strategy::Topology& topology) {
  std::vector<strategy::StageLanes> stages;
  for (int stage = 0; stage < pipeline.scheme.pp; ++stage)
    stages.push_back(strategy::stage_lanes(pipeline, stage, topology));
  std::vector<LaneRun> runs = {{0, 1}};
  for (int lane = 1; lane < pipeline.scheme.cp; ++lane) {
    const bool in_node = std::ranges::all_of(
        stages, [&](const strategy::StageLanes& of) { return of.level_of(lane - 1, 2) == 0; });
    if (in_node) {
      ++runs.back().lanes;
    } else {
      runs.push_back({lane, 1});
    }
  }
  return runs;
}

}  // namespace sluice::plan
