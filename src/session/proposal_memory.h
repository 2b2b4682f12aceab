// How much of a device's memory the steps of proposed strategies take.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/proposal.h"
#include "session/planning_task.h"

namespace sluice::session {

// Per proposal the predicted peak of the fullest device, of a step of the sample batch with the longest
// sequence that the strategy holds. The planner is the one that a run of all proposals has, so the memory
// policy is the run's, too. 0: the strategy holds none of the batches, or ranks are too many to build graphs
// of. REQUIRES: proposals of this task.
std::vector<int64_t> device_peaks_bytes(const PlanningTask& task, std::span<const plan::Proposal> proposals);

}  // namespace sluice::session
