#include "session/planned_step.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "session/methods.h"
#include "session/sampling.h"

namespace sluice::session {

namespace {

using plan::Planner;
using plan::PlannerOptions;

bool has_lanes(const strategy::Strategy& strategy) {
  return std::ranges::any_of(strategy.pipelines, [](const auto& pipeline) { return pipeline.scheme.cp > 1; });
}

bool chooses_widely(const PlannerOptions& options) {
  return options.selection == plan::Selection::kBest && options.method == plan::ours();
}

// One planner for each candidate, under the policy that keeps the least; the longest max_len_tokens() first.
std::vector<Planner> candidates_alone(const Planner& planner, const MethodPtr& method) {
  std::vector<Planner> planners;
  for (const strategy::Strategy& candidate : planner.options().candidates) {
    if (!method->plans_lanes() && has_lanes(candidate)) continue;
    PlannerOptions options = planner.options();
    options.candidates = {candidate};
    options.step_overhead = {};
    options.method = method;
    options.selection = plan::Selection::kBest;
    if (!options.policies.empty()) options.policies = {options.policies.back()};
    planners.emplace_back(std::move(options), planner.cost());
  }
  std::ranges::stable_sort(planners, std::ranges::greater(),
                           [](const Planner& p) { return p.max_len_tokens(); });
  return planners;
}

std::vector<Planner> fallbacks_of(const Planner& planner) {
  std::vector<Planner> planners;
  if (!chooses_widely(planner.options())) {
    PlannerOptions options = planner.options();
    options.method = plan::ours();
    options.selection = plan::Selection::kBest;
    planners.emplace_back(std::move(options), planner.cost());
  }
  for (const MethodPtr& method : {plan::ours(), plan::plain()}) {
    std::ranges::move(candidates_alone(planner, method), std::back_inserter(planners));
  }
  return planners;
}

// A failure that another plan may avoid: no room, or a mistake of ours.
struct Failure {
  std::string why;
  std::exception_ptr mistake;  // null: lack of room

  base::Infeasible report() const {
    if (mistake) std::rethrow_exception(mistake);
    return {why};
  }
};

template <typename Action>
std::optional<Failure> failure_of(const Action& action) {
  try {
    std::optional<base::Infeasible> none = action();
    return none ? std::optional(Failure{std::move(none->why), nullptr}) : std::nullopt;
  } catch (const std::logic_error& error) {
    return Failure{error.what(), std::current_exception()};
  }
}

}  // namespace

base::Feasible<PlannedStep> plan_step(const Planner& planner, int64_t step,
                                      const std::vector<strategy::Sequence>& sequences,
                                      const Accept& accept) {
  PlannedStep planned;
  const auto try_with = [&](const Planner& next) {
    return failure_of([&]() -> std::optional<base::Infeasible> {
      base::Feasible<strategy::StepPlan> plan = next.try_plan(step, sequences);
      if (!plan) return plan.none();
      planned.plan = std::move(*plan);
      return accept ? accept(planned.plan) : std::nullopt;
    });
  };
  const std::optional<Failure> first = try_with(planner);
  if (!first) return planned;
  planned.fallback = first->why;
  Failure reported = *first;
  bool widest = !chooses_widely(planner.options());
  for (const Planner& fallback : fallbacks_of(planner)) {
    const std::optional<Failure> failure = try_with(fallback);
    if (!failure) return planned;
    if (widest && !first->mistake && !failure->mistake) reported = *failure;
    widest = false;
  }
  return reported.report();
}

base::Feasible<BuiltStep> try_build_step(const Planner& planner, const model::ParameterTable& table,
                                         int64_t step, const std::vector<strategy::Sequence>& sequences,
                                         const graph::BuildOptions& options, EarlierActs earlier) {
  graph::StepGraph graph;
  std::vector<graph::StepGraph> before;
  const auto build = [&](const strategy::StepPlan& plan) -> std::optional<base::Infeasible> {
    auto built = graph::try_build(plan, table, planner.cost(), planner.options().world_size, options);
    if (!built) return built.none();
    graph = std::move(*built);
    auto acts = try_build_earlier(earlier, graph, planner.cost());
    if (!acts) return acts.none();
    before = std::move(*acts);
    return std::nullopt;
  };
  base::Feasible<PlannedStep> planned = plan_step(planner, step, sequences, build);
  if (!planned) return planned.none();
  return BuiltStep{std::move(planned->plan), std::move(graph), std::move(planned->fallback),
                   std::move(before)};
}

BuiltStep build_step(const Planner& planner, const model::ParameterTable& table, int64_t step,
                     const std::vector<strategy::Sequence>& sequences, const graph::BuildOptions& options,
                     EarlierActs earlier) {
  return try_build_step(planner, table, step, sequences, options, earlier).or_throw();
}

void try_longest(const Planner& planner, const model::ParameterTable& table, const Data& data,
                 graph::LinkPlans& links, EarlierActs earlier) {
  const auto build = [&](const std::optional<corpus::Sample>& longest, graph::Purpose purpose) {
    if (!longest) return;
    build_step(planner, table, 0, sequences_of({*longest}), {.purpose = purpose, .link_plans = &links},
               purpose == graph::Purpose::kTrain ? earlier : EarlierActs());
  };
  for (const DataPhase& phase : data.phases) {
    build(longest_training(phase), graph::Purpose::kTrain);
    build(longest_validation(phase), graph::Purpose::kEvaluate);
  }
}

}  // namespace sluice::session
