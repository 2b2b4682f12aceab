// The lanes of a pipeline while work is put on them: when each is free, and which run of them is free
// soonest.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "plan/lane_runs.h"

namespace sluice::published {

class LaneFloor {
 public:
  explicit LaneFloor(int lanes) : end_ns_(static_cast<size_t>(lanes), 0) {}

  int lanes() const { return static_cast<int>(end_ns_.size()); }
  int64_t end_ns(int lane) const { return end_ns_[static_cast<size_t>(lane)]; }
  int64_t end_ns(plan::LaneRun run) const;  // of its last
  void raise(plan::LaneRun run, int64_t end_ns);

  // The run of so many lanes that is free soonest; of equals the one that leaves least idle, then the first.
  // O(lanes).
  plan::LaneRun soonest(int lanes);

 private:
  std::vector<int64_t> end_ns_;
  std::vector<int> highest_;  // of soonest: lanes of the run whose ends descend
};

}  // namespace sluice::published
