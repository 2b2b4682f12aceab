#include "plan/lane_floor.h"

#include <algorithm>
#include <limits>

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

int64_t LaneFloor::end_ns(LaneRun run) const {
  const auto first = end_ns_.begin() + run.first;
  return *std::max_element(first, first + run.lanes);
}

void LaneFloor::raise(LaneRun run, int64_t end_ns) {
  const auto first = end_ns_.begin() + run.first;
  std::fill(first, first + run.lanes, end_ns);
}

LaneRun LaneFloor::soonest(int lanes) {
  highest_.clear();
  size_t front = 0;
  int64_t sum_ns = 0;
  std::pair<int64_t, int64_t> best{std::numeric_limits<int64_t>::max(), 0};
  LaneRun run{0, lanes};
  for (int lane = 0; lane < this->lanes(); ++lane) {
    while (highest_.size() > front && end_ns(highest_.back()) <= end_ns(lane)) highest_.pop_back();
    highest_.push_back(lane);
    sum_ns += end_ns(lane);
    const int first = lane + 1 - lanes;
    if (first < 0) continue;
    if (highest_[front] < first) ++front;
    const std::pair next{end_ns(highest_[front]), -sum_ns};
    if (next < best) run.first = first;
    best = std::min(best, next);
    sum_ns -= end_ns(first);
  }
  return run;
}

}  // namespace sluice::plan
