// Step plans in memory that outlives the worker that made them: the next epoch's worker of the same
// supervisor mostly begins with steps that its predecessor has planned already.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strategy/step_plan.h"
#include "transport/socket.h"

namespace sluice::survive {

// What a plan is a function of.
struct PlanKey {
  uint64_t planner = 0;  // a hash of all that it plans with
  int64_t step = 0;
  const std::vector<strategy::Sequence>& sequences;
};

// The newest plans, each in the place of the one `kPlans` steps before. Made by the supervisor and used by
// one thread of one worker at a time, which may be killed at any moment: what it left unfinished is not
// found.
class PlanMemory {
 public:
  static constexpr int64_t kPlans = 64;

  // Without memory for it nothing is kept.
  PlanMemory();

  std::optional<strategy::StepPlan> find(const PlanKey& key, int world_size) const;
  // Not if it is as large as no plan of a step is.
  void keep(const PlanKey& key, const strategy::StepPlan& plan);

 private:
  transport::Socket file_;  // sparse: so many places of kPlaceBytes
};

}  // namespace sluice::survive
