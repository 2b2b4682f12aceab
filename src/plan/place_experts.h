// Where experts lie on the lanes that divide them, from what routers chose.
//
// Experts that are visited most get seats on several lanes, where lanes have seats to spare (as in DeepSeek's
// EPLB). Seats go to lanes longest first, then change places as long as the busiest lane has less for it.
// Where it is known which experts are chosen together, seats change places once more, within a hundredth of
// that: a row goes once to a lane, however many of its experts lie there, so those that are chosen together
// should lie together (ExFlow, Yao et al., 2024, for experts of one layer: rows come home between layers).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "strategy/expert_placement.h"

namespace sluice::plan {

// What rows chose of a layer's experts.
struct ExpertUse {
  std::vector<int64_t> assignments;    // by expert; none of a layer without experts
  std::vector<int64_t> coactivations;  // [experts, experts]: rows that visited both; none: not known
};

// Of one layer, its seats lane by lane: an even part of its experts and `spare` more on each. REQUIRES: lanes
// divide the experts, and have no more seats than there are.
std::vector<int> placed_experts(const ExpertUse& use, int lanes, int spare);

// Of all layers of a model.
strategy::ExpertPlacement place_experts(std::span<const ExpertUse> layers, int lanes, int spare);

// The mean over layers with experts of what the busiest lane has over the mean one
// (model::expert_load_imbalance).
double expert_load_imbalance(std::span<const ExpertUse> layers, const strategy::ExpertPlacement& placement,
                             int lanes);

}  // namespace sluice::plan
