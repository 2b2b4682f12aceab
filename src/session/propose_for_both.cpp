#include "session/propose_for_both.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "cost/measured_passes.h"
#include "session/step_overhead.h"

namespace sluice::session {

namespace {

using plan::PlannerOptions;
using plan::Proposal;

bool gathers(const Proposal& proposal, const cost::CostModel& cost) {
  return cost::gathers_between_nodes(proposal.strategy, cost.options().topology);
}

// Costs, and planners made with them.
struct Assumption {
  const cost::CostModel& cost;
  ComparedPlanners& planners;
};

// The strategy's mean step by the clock over the compared batches that it holds; 0 if it holds none.
int64_t mean_step_ns(const strategy::Strategy& strategy, const PlannerOptions& options,
                     const Assumption& assumed) {
  const ComparedPlanner& compared = assumed.planners.of(strategy, options, assumed.cost);
  const std::vector<size_t> batches = compared_batches(options);
  if (compared.steps_ns && !batches.empty()) return *compared.steps_ns / std::ssize(batches);
  const auto beside = clocked_step_overhead(options, compared.planner.cost());
  int64_t sum_ns = 0, held = 0;
  for (const size_t batch : batches) {
    const auto step_ns = clocked_step_ns(compared.planner, options.sample_batches[batch], *beside);
    sum_ns += step_ns.value_or(0);
    held += step_ns ? 1 : 0;
  }
  return held == 0 ? 0 : sum_ns / held;
}

// Converts a proposal's mean time from one assumption to the other: all batches are assumed to gain or lose
// as much as the compared ones.
int64_t other_mean_ns(const Proposal& proposal, int64_t mean_ns, const PlannerOptions& options,
                      const Assumption& judged_under, const Assumption& other) {
  if (mean_ns == 0 || !gathers(proposal, judged_under.cost)) return mean_ns;
  const int64_t change_ns = mean_step_ns(proposal.strategy, options, other) -
                            mean_step_ns(proposal.strategy, options, judged_under);
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
Proposal best_single(PlannerOptions options, const cost::CostModel& cost) {
  options.max_strategies = 1;
  return best_of(session::propose(options, cost), options.context_length);
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

std::vector<Proposal> propose_for_both(const PlannerOptions& asked, const cost::CostModel& cost) {
  ComparedPlanners planners;
  return propose_for_both(asked, cost, planners);
}

std::vector<Proposal> propose_for_both(const PlannerOptions& asked, const cost::CostModel& cost,
                                       ComparedPlanners& planners) {
  PlannerOptions options = asked;
  if (!options.known_steps) options.known_steps = std::make_shared<plan::KnownSteps>();
  std::vector<Proposal> proposals = session::propose(options, cost);
  const auto gathers_here = [&](const Proposal& proposal) { return gathers(proposal, cost); };
  if (std::ranges::any_of(proposals, gathers_here)) {
    const cost::CostModel measured = cost::with_measured_passes(cost);
    ComparedPlanners measured_planners;
    const Assumption by_clock{cost, planners}, by_measurement{measured, measured_planners};
    const PlannerOptions comparing = plan::for_comparing(options);
    for (Proposal& proposal : proposals)
      proposal.mean_measured_ns =
          other_mean_ns(proposal, proposal.mean_estimated_ns, comparing, by_clock, by_measurement);
    Proposal best = best_single(options, measured);
    const bool known = std::ranges::find(proposals, best.strategy, &Proposal::strategy) != proposals.end();
    if (!known) make_room(options.max_strategies, options.context_length, proposals);
    if (!known && std::ssize(proposals) < options.max_strategies) {
      best.mean_measured_ns = best.mean_estimated_ns;
      best.mean_estimated_ns =
          other_mean_ns(best, best.mean_measured_ns, comparing, by_measurement, by_clock);
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
