// The search for candidate strategies (plan/proposal.h).
#pragma once

#include <vector>

#include "base/feasible.h"
#include "cost/cost_model.h"
#include "plan/proposal.h"

namespace sluice::plan {

// Of batches with more than 20M tokens in all as many as have those, evenly spread, stand for all. Beyond
// 1,024 ranks an equal part of machine and batches is searched, and what is found is repeated: what a step
// takes hardly changes when ranks and batch are divided by the same number.
// At most max_strategies, the first of which holds the context length. One after the other they are chosen so
// that the sum over batches of the least time falls most, until a further one gains next to nothing; then
// place by place what is best beside the others takes it. MixSearch finds mixes by fluid estimates; those
// that seem best are planned with as training would plan, on a few batches, and estimates corrected by that.
// At last every win is planned, and members are exchanged for others, or joined, while plans prove that it
// gains. Budgets are counts, never times. When no strategy holds the context length, why names it and the
// longest sequence that any holds. A pure function of its inputs, in integers but for `frequency`, which
// nothing depends on.
base::Feasible<std::vector<Proposal>> propose(const ProposalOptions& options, const cost::CostModel& cost);

}  // namespace sluice::plan
