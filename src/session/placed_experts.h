// Planning with experts that are placed by their use.
#pragma once

#include <span>

#include "plan/place_experts.h"
#include "session/decorators.h"

namespace sluice::session {

// Experts placed by their use (plan::place_experts), for all expert degrees among a planner's candidates.
// Prices follow the remaining load of the busiest lane.
struct PlacedExperts {
  CandidateDecorator candidates;
  PriceDecorator prices;
};
// `use`: by layer. The planner's costs give the number of spare expert slots.
PlacedExperts expert_placement(const plan::Planner& planner, std::span<const plan::ExpertUse> use);

}  // namespace sluice::session
