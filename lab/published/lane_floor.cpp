#include "published/lane_floor.h"

#include <algorithm>
#include <limits>

namespace sluice::published {
int64_t LaneFloor::end_ns(plan::LaneRun run) const {
  const auto first = end_ns_.begin() + run.first;
  return *std::max_element(first, first + run.lanes);
}

void LaneFloor::raise(plan::LaneRun run, int64_t end_ns) {
  const auto first = end_ns_.begin() + run.first;
  std::fill(first, first + run.lanes, end_ns);
}

plan::LaneRun LaneFloor::soonest(int lanes) {
  highest_.clear();
  size_t front = 0;
  int64_t sum_ns = 0;
  std::pair<int64_t, int64_t> best{std::numeric_limits<int64_t>::max(), 0};
  plan::LaneRun run{0, lanes};
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

}  // namespace sluice::published
