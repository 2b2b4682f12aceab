// The time at which each lane of a pipeline is free while work is put on lanes, and the run of lanes that is
// free soonest.
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
  int64_t end_ns(plan::LaneRun run) const;  // end of the run's last lane
  void raise(plan::LaneRun run, int64_t end_ns);

  // The run of `lanes` lanes that is free soonest; of equals the run that leaves least idle, then the first.
  // O(lanes).
  plan::LaneRun soonest(int lanes);

 private:
  std::vector<int64_t> end_ns_;
  std::vector<int> highest_;  // used by soonest(): lanes of the run, with descending ends
};

}  // namespace sluice::published
