#include "train/expert_rebalancer.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <functional>
#include <string>

#include "base/log.h"
#include "base/text.h"

namespace sluice::train {
namespace {

bool divides_experts(const plan::Planner& planner) {
  return std::ranges::any_of(planner.options().candidates, [](const strategy::Strategy& candidate) {
    return std::ranges::any_of(candidate.pipelines,
                               [](const strategy::Pipeline& pipeline) { return pipeline.scheme.ep > 1; });
  });
}

// False if lanes gathered experts in all steps: then visits are unknown.
bool are_visited(const std::vector<plan::ExpertUse>& use) {
  return std::ranges::any_of(use, [](const plan::ExpertUse& layer) {
    return std::ranges::any_of(layer.assignments, [](int64_t visits) { return visits > 0; });
  });
}

}  // namespace

ExpertRebalancer::ExpertRebalancer(run::Planning& planning, survive::Control& control)
    : planning_(planning), control_(control), config_(planning.config().parallel) {
  const model::Model& model = *planning.config().model.resolved;
  if (config_.expert_placement == config::ExpertPlacementPolicy::kLinear ||
      !divides_experts(planning.planner()))
    return;
  layers_ = model.layers();
  experts_ = model.experts().count;
  const bool pairs = config_.expert_placement == config::ExpertPlacementPolicy::kByCoactivation;
  counts_.resize(static_cast<size_t>(layers_ * experts_ * (pairs ? 1 + experts_ : 1)), 0);
}

void ExpertRebalancer::observe(int64_t step, const runtime::StepResult& result) {
  if (!places()) return;
  count(result.experts);
  // Steps that may have been planned already stay as they are, on all ranks.
  const int64_t from = run::PlanAhead::first_unplanned(step);
  if ((step + 1) % config_.expert_placement_every != 0 || from >= planning_.config().train.steps) return;
  const std::vector<plan::ExpertUse> use = agreed_use();
  if (!are_visited(use)) return;
  planning_.step_planners().expert_placement_from(from, use);
  if (control_.rank() != 0) return;
  const auto placed = planning_.step_planners().at(from);
  std::vector<std::string> busiest;
  for (const auto& [lanes, percent] : placed->planner.cost().options().expert_imbalance_percent)
    busiest.push_back(base::text("the busiest of ", lanes, " lanes has ", percent, " %"));
  base::log_info(base::text("from step ", from, " on experts are placed by their load: ",
                            base::join(busiest, ", "), " of the mean lane's tokens"));
}

void ExpertRebalancer::count(const layers::ExpertLoad& load) {
  const auto of_layer = std::ssize(counts_) / layers_;
  for (size_t layer = 0; layer < load.assignments.size(); ++layer) {
    const auto first = counts_.begin() + static_cast<ptrdiff_t>(layer) * of_layer;
    const std::vector<int64_t>& visits = load.assignments[layer];
    for (size_t expert = 0; expert < visits.size(); ++expert)
      first[static_cast<ptrdiff_t>(expert)] += static_cast<double>(visits[expert]);
    if (layer >= load.coactivations.size() || !load.coactivations[layer].defined()) continue;
    const at::Tensor pairs = load.coactivations[layer].cpu().contiguous();
    const auto* const from = pairs.const_data_ptr<double>();
    std::transform(from, from + pairs.numel(), first + experts_, first + experts_, std::plus());
  }
}

std::vector<plan::ExpertUse> ExpertRebalancer::agreed_use() {
  control_.add_up(counts_);
  const auto of_layer = std::ssize(counts_) / layers_;
  std::vector<plan::ExpertUse> use(static_cast<size_t>(layers_));
  for (int64_t layer = 0; layer < layers_; ++layer) {
    if (!planning_.config().model.resolved->has_experts(layer)) continue;
    const auto first = counts_.begin() + layer * of_layer;
    plan::ExpertUse& own = use[static_cast<size_t>(layer)];
    own.assignments.assign(first, first + experts_);
    own.coactivations.assign(first + experts_, first + of_layer);
  }
  std::ranges::fill(counts_, 0);
  return use;
}

}  // namespace sluice::train
