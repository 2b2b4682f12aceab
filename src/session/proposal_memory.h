// The device memory that steps of proposed strategies take.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cost/cost_model.h"
#include "plan/planner_options.h"

namespace sluice::session {

// By proposal, the predicted peak of the fullest device, for the sample batch with the longest sequence that
// the strategy holds. The planner is that of a run with all proposals, so the memory policy is the run's,
// too. 0: the strategy holds no batch, or ranks are too many to build graphs for. REQUIRES: proposals with
// these options and costs.
std::vector<int64_t> device_peaks_bytes(const plan::PlannerOptions& options, const cost::CostModel& cost,
                                        std::span<const plan::Proposal> proposals);

}  // namespace sluice::session
