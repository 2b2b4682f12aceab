// The search for candidate strategies (plan/proposal.h).
#pragma once

#include <vector>

#include "base/feasible.h"
#include "cost/cost_model.h"
#include "plan/planner_options.h"

namespace sluice::plan {

// Proposes at most max_strategies, the first of which holds the context length. If batches have
// more than 20M tokens in all, evenly spread ones with as many tokens stand for all. Beyond
// 1,024 ranks an equal part of machine and batches is searched and the result repeated: a step's
// time hardly changes when ranks and batch are divided by the same number. Strategies are chosen
// greedily: each minimizes the sum over batches of the least time, until one more gains next to
// nothing. Then each place in turn takes the strategy that is best beside the others. MixSearch
// finds mixes by fluid estimates. The best-looking mixes are planned as in training on a few
// batches, and estimates are corrected by these plans. Finally every win is planned, and members
// are exchanged or added while plans prove a gain. Budgets are counts, never times. If no
// strategy holds the context length, `why` names it and the longest sequence that any holds. A
// pure function of its inputs, in integers except for `frequency`, which nothing depends on.
base::Feasible<std::vector<Proposal>> propose(const PlannerOptions& options, const cost::CostModel& cost);

}  // namespace sluice::plan
