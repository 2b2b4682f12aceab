// The planners of steps from which on the ranks' paces have changed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "plan/planner.h"

namespace sluice::train {

// Thread-safe: steps are planned ahead on another thread.
class PacedPlanners {
 public:
  // `priced`: takes all ranks for alike; it outlives this.
  explicit PacedPlanners(const plan::Planner& priced) : priced_(priced) {}

  struct Entry {
    plan::Planner planner;
    uint64_t hash = 0;  // of the paces
  };
  // Null: the step is the priced planner's.
  std::shared_ptr<const Entry> at(int64_t step) const;
  // From `step` on ranks take so many hundredths of what they are priced at, by world rank; whatever was to
  // be from there on is no more. REQUIRES: no such step has been asked for.
  void slow_from(int64_t step, std::span<const int> pace_percent);

 private:
  const plan::Planner& priced_;
  mutable std::mutex mutex_;
  std::map<int64_t, std::shared_ptr<const Entry>> entries_;  // by first step
};

}  // namespace sluice::train
