// Proposals that are good under both assumptions about all-gathers between nodes.
#pragma once

#include <vector>

#include "cost/cost_model.h"
#include "plan/planner_options.h"
#include "session/candidates.h"

namespace sluice::session {

// As propose, with a step's mean time under both assumptions: all-gathers between nodes hide as the clock
// says, or each pass also takes the measured time (cost/measured_passes.h). If a proposal gathers between
// nodes, the best single strategy under the second assumption is added. If max_strategies > 1 are
// there already, it replaces the one that is least often the best. Throws as propose.
std::vector<plan::Proposal> propose_for_both(const plan::PlannerOptions& options,
                                             const cost::CostModel& cost);
// The same. `planners` then has those of proposals that were compared under both assumptions, by the costs as
// they are and plan::for_comparing's options.
std::vector<plan::Proposal> propose_for_both(const plan::PlannerOptions& options, const cost::CostModel& cost,
                                             ComparedPlanners& planners);

}  // namespace sluice::session
