// Planners for the steps after a run has measured something: the speed of its ranks, or the experts that
// routers choose.
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
  // `priced`: the planner without measurements of this run; it outlives this object.
  explicit StepPlanners(const plan::Planner& priced) : priced_(priced) {}

  struct Entry {
    plan::Planner planner;
    uint64_t hash = 0;  // hash of the measurements
  };
  // The planner of a step; null: the step uses the priced planner.
  std::shared_ptr<const Entry> at(int64_t step) const;
  // From `step` on, ranks compute on these devices, by rank; empty: alike.
  void compute_on(int64_t step, std::span<const strategy::Device> devices);
  // From `step` on, ranks take so many hundredths of their priced time, by world rank; or experts are used so
  // often (session::expert_placement). Earlier settings for these steps are dropped. REQUIRES:
  // no such step has been asked for.
  void slow_from(int64_t step, std::span<const int> pace_percent);
  void expert_placement_from(int64_t step, std::span<const plan::ExpertUse> use);

 private:
  void enter(int64_t step);

  const plan::Planner& priced_;
  std::vector<strategy::Device> devices_;  // empty: the priced planner's
  std::vector<int> pace_percent_;          // empty: alike
  std::vector<plan::ExpertUse> use_;       // empty: not known
  mutable std::mutex mutex_;
  std::map<int64_t, std::shared_ptr<const Entry>> entries_;  // by first step
};

}  // namespace sluice::run
