// The planners of steps from which on a run has learnt something: how fast its ranks are, what routers
// choose.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "plan/place_experts.h"
#include "plan/planner.h"

namespace sluice::run {

// Thread-safe: steps are planned ahead on another thread.
class StepPlanners {
 public:
  // `priced`: knows nothing of the run; it outlives this.
  explicit StepPlanners(const plan::Planner& priced) : priced_(priced) {}

  struct Entry {
    plan::Planner planner;
    uint64_t hash = 0;  // of what was learnt
  };
  // Null: the step is the priced planner's.
  std::shared_ptr<const Entry> at(int64_t step) const;
  // From `step` on devices compute so, by rank; none: alike.
  void compute_on(int64_t step, std::span<const strategy::Device> devices);
  // From `step` on ranks take so many hundredths of what they are priced at, by world rank; or experts are
  // visited so (session::planner_with_expert_placement). Whatever was to be from there on is no more.
  // REQUIRES: no such step has been asked for.
  void slow_from(int64_t step, std::span<const int> pace_percent);
  void expert_placement_from(int64_t step, std::span<const plan::ExpertUse> use);

 private:
  void enter(int64_t step);

  const plan::Planner& priced_;
  std::vector<strategy::Device> devices_;  // none: the priced planner's
  std::vector<int> pace_percent_;          // none: alike
  std::vector<plan::ExpertUse> use_;       // none: not known
  mutable std::mutex mutex_;
  std::map<int64_t, std::shared_ptr<const Entry>> entries_;  // by first step
};

}  // namespace sluice::run
