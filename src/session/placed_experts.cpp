#include "session/placed_experts.h"

#include <cmath>
#include <map>
#include <memory>
#include <utility>

namespace sluice::session {

PlacedExperts expert_placement(const plan::Planner& planner, std::span<const plan::ExpertUse> use) {
  const int spare = planner.cost().options().redundant_experts;
  strategy::ExpertPlacements placements;
  std::map<int, int> imbalance_percent;
  for (const strategy::Strategy& candidate : planner.options().candidates) {
    for (const strategy::Pipeline& pipeline : candidate.pipelines) {
      const int lanes = pipeline.scheme.ep;
      if (lanes == 1 || placements.contains(lanes)) continue;
      auto placement = std::make_shared<strategy::ExpertPlacement>(plan::place_experts(use, lanes, spare));
      imbalance_percent[lanes] =
          static_cast<int>(std::ceil(100 * plan::expert_load_imbalance(use, *placement, lanes)));
      placements.emplace(lanes, std::move(placement));
    }
  }
  return {{[placements](plan::PlannerOptions& options) {
            for (strategy::Strategy& candidate : options.candidates)
              candidate = strategy::with_placements(std::move(candidate), placements);
          }},
          {[imbalance_percent](cost::CostModel::Options& costs) {
            for (const auto& [lanes, percent] : imbalance_percent)
              costs.expert_imbalance_percent[lanes] = percent;
          }}};
}

}  // namespace sluice::session
