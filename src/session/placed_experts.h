// Planning for experts that lie as they were visited.
#pragma once

#include <span>

#include "plan/place_experts.h"
#include "plan/planner.h"

namespace sluice::session {

// The planner for the same work where candidates' lanes have experts placed by their use, one of ExpertUse a
// layer (plan::place_experts, with as many seats to spare as the costs say), at what that leaves to the
// busiest lane.
plan::Planner planner_with_expert_placement(const plan::Planner& planner,
                                            std::span<const plan::ExpertUse> use);

}  // namespace sluice::session
