// Places experts on the lanes that divide them, by the routers' choices.
//
// The most visited experts get slots on several lanes, where lanes have spare slots (as in DeepSeek's
// EPLB). Without coactivations slots go to lanes longest first (LPT), then change places as long as the
// busiest lane's load falls. With coactivations, experts that are chosen together go to one lane, within
// a hundredth of the mean load: a row goes to a lane once, however many of its experts lie there. ExFlow
// (Yao et al., 2024) does so across layers; here it is one layer, as rows return between layers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "strategy/expert_placement.h"

namespace sluice::plan {

// Routers' choices in one layer.
struct ExpertUse {
  std::vector<int64_t> assignments;    // by expert; empty for a layer without experts
  std::vector<int64_t> coactivations;  // [experts, experts]: rows that visited both; empty: not known
};

// One layer's slots, lane by lane: an even part of its experts and `spare` more on each lane.
// REQUIRES: lanes divide the number of experts; a lane has at most as many slots as there are experts.
std::vector<int> placed_experts(const ExpertUse& use, int lanes, int spare);

// The placement of all layers of a model.
strategy::ExpertPlacement place_experts(std::span<const ExpertUse> layers, int lanes, int spare);

// The busiest lane's load over the mean lane's
// (model::expert_load_imbalance), averaged over layers with experts.
double expert_load_imbalance(std::span<const ExpertUse> layers, const strategy::ExpertPlacement& placement,
                             int lanes);

}  // namespace sluice::plan
