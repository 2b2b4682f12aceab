// Decorators of a planner for the same work, which say by type what they change.
#pragma once

#include <functional>
#include <utility>

#include "cost/cost_model.h"
#include "plan/planner.h"

namespace sluice::session {

// Changes candidates, or the devices that they lie on; prices stay.
struct CandidateDecorator {
  std::function<void(plan::PlannerOptions&)> change;
};

// Changes prices; candidates stay.
struct PriceDecorator {
  std::function<void(cost::CostModel::Options&)> change;
};

inline cost::CostModel decorated(const cost::CostModel& cost, const PriceDecorator& prices) {
  cost::CostModel::Options options = cost.options();
  prices.change(options);
  return cost.with(std::move(options));
}
inline plan::Planner decorated(const plan::Planner& planner, const CandidateDecorator& candidates) {
  plan::PlannerOptions options = planner.options();
  candidates.change(options);
  return {std::move(options), planner.cost()};
}
// Both at once, where neither is valid without the other.
inline plan::Planner decorated(const plan::Planner& planner, const CandidateDecorator& candidates,
                               const PriceDecorator& prices) {
  plan::PlannerOptions options = planner.options();
  candidates.change(options);
  return {std::move(options), decorated(planner.cost(), prices)};
}

}  // namespace sluice::session
