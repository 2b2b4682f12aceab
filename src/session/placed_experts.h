// Planning with experts that are placed by their use.
#pragma once

#include <span>

#include "plan/place_experts.h"
#include "plan/planner.h"

namespace sluice::session {

// The planner for the same work with experts placed by their use (plan::place_experts), one ExpertUse per
// layer. The costs give the number of spare expert slots. Prices follow the remaining load of the busiest
// lane.
plan::Planner planner_with_expert_placement(const plan::Planner& planner,
                                            std::span<const plan::ExpertUse> use);

}  // namespace sluice::session
