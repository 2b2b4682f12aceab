// The device memory that steps of proposed strategies take.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/proposal.h"
#include "session/planning_task.h"

namespace sluice::session {

// By proposal, the predicted peak of the fullest device, for the sample batch with the longest sequence that
// the strategy holds. The planner is that of a run with all proposals, so the memory policy is the run's,
// too. 0: the strategy holds no batch, or ranks are too many to build graphs for. REQUIRES: proposals of this
// task.
std::vector<int64_t> device_peaks_bytes(const PlanningTask& task, std::span<const plan::Proposal> proposals);

}  // namespace sluice::session
