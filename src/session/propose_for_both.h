// Proposals that bet on neither assumption about gathers between nodes.
#pragma once

#include <vector>

#include "plan/proposal.h"
#include "session/planning_task.h"

namespace sluice::session {

// As propose, with a step's mean time under both assumptions: gathers between nodes hide as the clock says,
// or each pass takes besides what was measured (cost/measured_passes.h). Where a proposed strategy gathers
// between nodes, the one that is best alone under the second assumption joins those of the first: in a place of its own, or where there are already choices.max_strategies, and that is more than
// 1, in that of the strategy that is least often the best. Throws as propose.
std::vector<plan::Proposal> propose_for_both(const PlanningTask& task);

}  // namespace sluice::session
