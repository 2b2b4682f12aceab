#include "session/placed_experts.h"

#include <cmath>
#include <memory>
#include <utility>

namespace sluice::session {

plan::Planner planner_with_expert_placement(const plan::Planner& planner,
                                            std::span<const plan::ExpertUse> use) {
  plan::PlannerOptions options = planner.options();
  cost::CostModel::Options costs = planner.cost().options();
  strategy::ExpertPlacements placements;
  for (strategy::Strategy& candidate : options.candidates) {
    for (const strategy::Pipeline& pipeline : candidate.pipelines) {
      const int lanes = pipeline.scheme.ep;
      if (lanes == 1 || placements.contains(lanes)) continue;
      auto placement = std::make_shared<strategy::ExpertPlacement>(
          plan::place_experts(use, lanes, costs.redundant_experts));
      costs.expert_imbalance_percent[lanes] =
          static_cast<int>(std::ceil(100 * plan::expert_load_imbalance(use, *placement, lanes)));
      placements.emplace(lanes, std::move(placement));
    }
    candidate = strategy::with_placements(std::move(candidate), placements);
  }
  return {std::move(options), planner.cost().with(std::move(costs))};
}

}  // namespace sluice::session
