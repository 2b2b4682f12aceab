#include "session/propose_for_both.h"

#include <algorithm>
#include <utility>

#include "cost/measured_passes.h"
#include "plan/batch_sample.h"
#include "session/candidates.h"
#include "session/step_overhead.h"

namespace sluice::session {

namespace {

using plan::Proposal;

constexpr size_t kComparedBatches = 8;  // from the sample, evenly spread, for comparing the assumptions

bool gathers(const Proposal& proposal, const PlanningTask& task) {
  return cost::gathers_between_nodes(proposal.strategy, task.cost.options().topology);
}

PlanningTask under_measured_passes(const PlanningTask& task) {
  PlanningTask measured = task;
  measured.cost = cost::with_measured_passes(task.cost);
  return measured;
}

// The strategy's mean step by the clock over the compared batches that it holds; 0 if it holds none.
int64_t mean_step_ns(const strategy::Strategy& strategy, PlanningTask task) {
  task.choices.strategies = {strategy};
  task.choices.selection = plan::Selection::kBest;
  const plan::Planner planner = make_planner(task);
  const ClockedStepOverhead beside(planner.cost());
  int64_t sum_ns = 0, held = 0;
  for (const size_t batch : plan::spread_within(task.sample_batches, plan::kMostSampleTokens, kComparedBatches)) {
    const auto plan = planner.try_plan(0, plan::sequences_of(task.sample_batches[batch]));
    if (!plan) continue;
    sum_ns += plan->estimated_ns + beside.of_plan_ns(*plan, planner.cost(), task.world_size);
    ++held;
  }
  return held == 0 ? 0 : sum_ns / held;
}

// Converts a proposal's mean time from one assumption to the other: all batches are assumed to gain or lose
// as much as the compared ones.
int64_t other_mean_ns(const Proposal& proposal, int64_t mean_ns, const PlanningTask& judged_under,
                      const PlanningTask& other) {
  if (mean_ns == 0 || !gathers(proposal, judged_under)) return mean_ns;
  const int64_t change_ns =
      mean_step_ns(proposal.strategy, other) - mean_step_ns(proposal.strategy, judged_under);
  return std::max<int64_t>(1, mean_ns + change_ns);
}

// The least mean step among proposals that hold the context; the first proposal if none has a mean.
const Proposal& best_of(const std::vector<Proposal>& proposals, int64_t context_length) {
  const auto key = [&](const Proposal& of) {
    return std::pair(of.max_len_tokens < context_length || of.mean_estimated_ns == 0, of.mean_estimated_ns);
  };
  return *std::ranges::min_element(proposals, {}, key);
}

// The strategy that is best if it is the only one.
Proposal best_single(PlanningTask task) {
  task.choices.max_strategies = 1;
  return best_of(propose(task), task.context_length);
}

// Makes room for one more proposal, if one of the present ones can be dropped.
void make_room(int most, int64_t context_length, std::vector<Proposal>& proposals) {
  if (std::ssize(proposals) < most) return;
  const strategy::Strategy keep = best_of(proposals, context_length).strategy;
  auto rarest = proposals.end();
  // The first proposal holds the context and stays.
  for (auto at = proposals.begin() + 1; at < proposals.end(); ++at) {
    if (at->strategy == keep) continue;
    if (rarest == proposals.end() || at->frequency < rarest->frequency) rarest = at;
  }
  if (rarest != proposals.end()) proposals.erase(rarest);
}

}  // namespace

std::vector<Proposal> propose_for_both(const PlanningTask& task) {
  std::vector<Proposal> proposals = propose(task);
  const auto gathers_here = [&](const Proposal& proposal) { return gathers(proposal, task); };
  if (std::ranges::any_of(proposals, gathers_here)) {
    const PlanningTask measured = under_measured_passes(task);
    for (Proposal& proposal : proposals)
      proposal.mean_measured_ns = other_mean_ns(proposal, proposal.mean_estimated_ns, task, measured);
    Proposal best = best_single(measured);
    const bool known = std::ranges::find(proposals, best.strategy, &Proposal::strategy) != proposals.end();
    if (!known) make_room(task.choices.max_strategies, task.context_length, proposals);
    if (!known && std::ssize(proposals) < task.choices.max_strategies) {
      best.mean_measured_ns = best.mean_estimated_ns;
      best.mean_estimated_ns = other_mean_ns(best, best.mean_measured_ns, measured, task);
      best.frequency = 0;
      best.longest = {};
      proposals.push_back(std::move(best));
    }
  }
  for (Proposal& proposal : proposals) {
    if (proposal.mean_measured_ns == 0) proposal.mean_measured_ns = proposal.mean_estimated_ns;
  }
  return proposals;
}

}  // namespace sluice::session
