// Step plans in memory that outlives the worker that made them. The next membership's worker of the same
// supervisor usually begins with steps that its predecessor has already planned.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strategy/step_plan.h"
#include "transport/socket.h"

namespace sluice::survive {

// The inputs that determine a plan.
struct PlanKey {
  uint64_t planner = 0;  // a hash of everything else that the planner uses
  int64_t step = 0;
  const std::vector<strategy::Sequence>& sequences;
};

// The newest plans: each replaces the one kPlans steps before. The supervisor creates the memory, and one
// thread of one worker at a time uses it. The worker may be killed at any moment: an unfinished plan is not
// found.
class PlanMemory {
 public:
  static constexpr int64_t kPlans = 64;

  // If the system gives no memory, nothing is kept.
  PlanMemory();

  std::optional<strategy::StepPlan> find(const PlanKey& key, int world_size) const;
  // Does nothing if the plan is larger than kPlaceBytes, which no real plan is.
  void keep(const PlanKey& key, const strategy::StepPlan& plan);

 private:
  transport::Socket file_;  // sparse: kPlans places of kPlaceBytes each
};

}  // namespace sluice::survive
