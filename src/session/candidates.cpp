#include "session/candidates.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "corpus/sampler.h"
#include "cost/exchange.h"
#include "cost/memory_cost.h"
#include "model/head_parts.h"
#include "plan/batch_sample.h"
#include "plan/memory_choice.h"
#include "plan/offload.h"
#include "plan/precision.h"
#include "plan/scheme_figures.h"
#include "session/memory_fit.h"
#include "session/step_overhead.h"
#include "session/unequal_devices.h"

namespace sluice::session {

namespace {

using base::InputError;
using base::text;

void check_proposing(const PlannerChoices& choices) {
  if (choices.max_strategies < 1)
    throw InputError(text("max_strategies is ", choices.max_strategies, ": give 1 or more"));
  if (choices.max_cp < 0) throw InputError(text("max_cp is ", choices.max_cp, ": give 1 or more"));
  if (!choices.method->plans_lanes() && choices.max_cp > 1) {
    throw InputError(text("max_cp is ", choices.max_cp,
                          " but the published algorithms know no lanes: leave it at 1 or propose with ours"));
  }
}

void check_selection(const PlannerChoices& choices, size_t candidates) {
  if (choices.selection != plan::Selection::kFixed) return;
  if (choices.fixed_candidate >= 0 && static_cast<size_t>(choices.fixed_candidate) < candidates) return;
  throw InputError(text("parallel.select is ", choices.fixed_candidate, ", but there are ", candidates,
                        " in parallel.strategies, counted from 0: choose a smaller one"));
}

int most_lanes(const PlanningTask& task) {
  const PlannerChoices& choices = task.choices;
  if (!choices.method->plans_lanes()) return 1;
  return choices.max_cp > 0 ? choices.max_cp : task.world_size;
}

int most_share(const PlanningTask& task) {
  return task.choices.fsdp && task.choices.method->plans_fsdp() ? task.world_size : 1;
}

// The task's progress in words.
std::function<void(int64_t, int64_t)> counts_told(const PlanningTask& task) {
  if (!task.progress) return {};
  return [&task](int64_t strategies, int64_t steps) {
    task.progress(text(base::human_count(strategies, "strategy", "strategies"), " compared in ",
                       base::human_count(steps, "planned step", "planned steps")));
  };
}

base::Feasible<std::vector<plan::Proposal>> propose_under(const cost::CostModel& machine,
                                                          const PlanningTask& task) {
  const PlannerChoices& choices = task.choices;
  const cost::CostModel cost = cost::choosing_from(machine, choices.exchanges);
  const plan::ProposalOptions options{.world_size = task.world_size,
                                      .context_length = task.context_length,
                                      .sample_batches = task.sample_batches,
                                      .step_overhead = std::make_shared<ClockedStepOverhead>(cost),
                                      .max_strategies = choices.max_strategies,
                                      .max_cp = most_lanes(task),
                                      .max_fsdp = most_share(task),
                                      .progress = counts_told(task)};
  return choices.method->propose(options, cost);
}

// If heads are the only allowed exchange, every lane needs a head: InputError instead of a silent ring.
void check_heads(const std::vector<strategy::Strategy>& candidates, const PlanningTask& task) {
  const cost::ExchangeSet& exchanges = task.choices.exchanges;
  if (exchanges.ring || exchanges.nested || exchanges.moves_queries()) return;
  const model::Model& model = task.cost.options().model;
  for (const strategy::Strategy& candidate : candidates) {
    for (const strategy::Pipeline& pipeline : candidate.pipelines) {
      const int64_t heads = model::most_head_lanes(model, pipeline.scheme.tp);
      if (pipeline.scheme.cp <= heads) continue;
      throw InputError(text("strategy '", to_text(candidate), "': its ", pipeline.scheme.cp,
                            " lanes can't all exchange heads, because of the model's ", model.heads(),
                            " a TP rank has ", heads, ": lower cp to ", heads,
                            " or less, or exchange nested, in a ring or by auto"));
    }
  }
}

// The choices' policies. If the first one does not hold the context, the one under which a scheme holds it
// comes second.
std::vector<strategy::MemoryPolicy> policies_that_hold(const PlanningTask& task,
                                                       const std::vector<strategy::Scheme>& schemes) {
  const PlannerChoices& choices = task.choices;
  const cost::CostModel first =
      choices.policies.empty() ? task.cost : task.cost.under(choices.policies.front());
  if (!choices.saves.any() || !choices.method->plans_fsdp()) return choices.policies;
  const bool held = std::ranges::any_of(schemes, [&](const strategy::Scheme& scheme) {
    const int64_t lane_tokens = cost::MemoryCost(first, scheme).max_len_tokens(task.world_size);
    return plan::longest_on(scheme.cp, lane_tokens) >= task.context_length;
  });
  if (held) return choices.policies;
  const auto choice =
      plan::choose_memory(first, schemes, task.world_size, task.context_length, choices.saves);
  if (!choice) return choices.policies;
  std::vector<strategy::MemoryPolicy> policies{first.policy(), choice->policy};
  for (size_t i = 1; i < choices.policies.size(); ++i) {
    strategy::MemoryPolicy further = choices.policies[i];
    further.offload_permille = std::max(further.offload_permille, choice->policy.offload_permille);
    if (further != policies.back()) policies.push_back(further);
  }
  return policies;
}

// The reason why no strategy holds the context under the task's settings, and settings that would.
std::string refusal(const PlanningTask& task, const std::vector<strategy::Scheme>& schemes) {
  const cost::CostModel first =
      task.choices.policies.empty() ? task.cost : task.cost.under(task.choices.policies.front());
  const int64_t longest = plan::longest_held(first, schemes, task.world_size, task.choices.saves);
  const std::string ranks = base::human_count(task.world_size, "rank", "ranks");
  const std::string way =
      way_out({.cost = first, .world_size = task.world_size, .length_tokens = task.context_length});
  if (longest == 0) {
    return text("no scheme that the calibration knows holds the model on ", ranks,
                ": use more, or devices with more memory: ", way);
  }
  return text("no strategy on ", ranks, " holds context_length ", task.context_length,
              ": the longest that fits is ", longest, " tokens: ", way, "; or lower context_length");
}

plan::Planner planner_under(const PlanningTask& task) {
  const PlannerChoices& choices = task.choices;
  plan::PlannerOptions options;
  options.world_size = task.world_size;
  options.candidates = !choices.strategies.empty() ? choices.strategies
                       : task.devices.empty()      ? plan::strategies_of(propose(task))
                                                   : strategies_by_device(task, propose);
  options.devices = task.devices;
  // A pipeline over ranks with different measurements counts as on its slowest rank (strategy::on_devices).
  if (task.devices_from == DeviceSource::kDescribed) check_devices(options.candidates, task.devices);
  check_lanes(options.candidates, *choices.method);
  if (!choices.strategies.empty()) check_heads(options.candidates, task);
  check_selection(choices, options.candidates.size());
  options.policies = policies_that_hold(task, plan::schemes_of(options.candidates));
  options.method = choices.method;
  options.selection = choices.selection;
  options.fixed_candidate = choices.fixed_candidate;
  const cost::CostModel cost = cost::choosing_from(task.cost, task.choices.exchanges);
  const bool chooses = options.candidates.size() > 1 && options.selection == plan::Selection::kBest;
  if (chooses && choices.method == plan::ours())
    options.step_overhead = std::make_shared<ClockedStepOverhead>(cost);
  return plan::Planner(std::move(options), cost);
}

// The time of evenly spread sample batches by the clock, which counts copies; nothing if one is not held.
std::optional<int64_t> steps_ns(const plan::Planner& planner, const PlanningTask& task) {
  constexpr size_t kMost = 8;
  const ClockedStepOverhead beside(planner.cost());
  int64_t sum_ns = 0;
  for (const size_t batch : plan::spread_within(task.sample_batches, plan::kMostSampleTokens, kMost)) {
    const base::Feasible<strategy::StepPlan> plan =
        planner.try_plan(0, plan::sequences_of(task.sample_batches[batch]));
    if (!plan) return std::nullopt;
    sum_ns += plan->estimated_ns + beside.of_plan_ns(*plan, planner.cost(), task.world_size);
  }
  return sum_ns;
}

// Whether a run may use another first policy than its first configured one.
bool chooses_policy(const PlanningTask& task) {
  return !task.choices.policies.empty() && task.choices.method == plan::ours() &&
         !task.sample_batches.empty();
}

// Replaces task and planner by ones with `policies`, if steps of sample batches then end sooner.
void plan_under_if_sooner(std::vector<strategy::MemoryPolicy> policies, PlanningTask& task,
                          plan::Planner& planner) {
  PlanningTask changed = task;
  changed.choices.policies = std::move(policies);
  plan::Planner other = planner_under(changed);
  const std::optional<int64_t> before_ns = steps_ns(planner, task), after_ns = steps_ns(other, task);
  if (!before_ns || !after_ns || *after_ns >= *before_ns - *before_ns / plan::kNegligiblePart) return;
  planner = std::move(other);
  task = std::move(changed);
}

// Recomputes the experts' results of dispatched rows, if that lets lanes hold more and shortens steps.
void save_visits(PlanningTask& task, plan::Planner& planner) {
  const auto travels = [](const strategy::Strategy& candidate) {
    return std::ranges::any_of(candidate.pipelines,
                               [](const auto& pipeline) { return pipeline.scheme.ep > 1; });
  };
  if (!chooses_policy(task) || std::ranges::none_of(planner.options().candidates, travels)) return;
  std::vector<strategy::MemoryPolicy> policies = task.choices.policies;
  for (strategy::MemoryPolicy& policy : policies) policy.recompute_dispatch = !policy.recomputes();
  plan_under_if_sooner(std::move(policies), task, planner);
}

// Offloads the share that is always hidden, if that shortens steps.
void save_lanes(PlanningTask& task, plan::Planner& planner) {
  const PlannerChoices& choices = task.choices;
  if (!chooses_policy(task) || !choices.saves.offload || !choices.offload_saves_lanes) return;
  std::vector<strategy::MemoryPolicy> policies = choices.policies;
  policies.front().offload_permille =
      plan::hidden_permille(task.cost.under(policies.front()), planner.options().candidates, task.world_size);
  if (policies.front().offload_permille > 0) plan_under_if_sooner(std::move(policies), task, planner);
}

void refuse_small_host(const plan::Planner& planner, int64_t length) {
  const plan::PlannerOptions& options = planner.options();
  if (options.policies.empty()) return;
  const cost::CostModel cost = planner.cost().under(options.policies.back());
  const int64_t needed = plan::host_bytes_for(cost, options.candidates, options.world_size, length);
  const int64_t has = cost.options().memory.host_bytes;
  if (has == 0 || needed <= has) return;
  throw base::InfeasibleError(
      text("offloading a sequence of ", length, " tokens takes ", base::human_bytes(needed),
           " of host memory a rank, which may use ", base::human_bytes(has),
           ": raise memory.host_gib, lower memory.offload, raise tp or pp, or run fewer ranks a machine"));
}

// Checks as corpus::Sampler does for drawn batches; one batch of all sequences is always allowed.
void require_drawable(const std::vector<int64_t>& sequence_lengths, int64_t tokens_per_step) {
  const auto all = std::reduce(sequence_lengths.begin(), sequence_lengths.end(), int64_t{0});
  const double mean = static_cast<double>(all) / static_cast<double>(sequence_lengths.size());
  const int64_t most_sequences = std::max(corpus::Sampler::kMostSequences, std::ssize(sequence_lengths));
  const double most = mean * static_cast<double>(most_sequences);
  if (tokens_per_step <= all || static_cast<double>(tokens_per_step) <= most) return;
  throw base::InputError(text("tokens_per_step is ", tokens_per_step, ": ", base::human_count(most_sequences),
                              " sequences have only some ", base::human_count(static_cast<int64_t>(most)),
                              " tokens, and a batch holds no more of them; set it to that at most"));
}

}  // namespace

std::vector<std::vector<int64_t>> sample_batches(const std::vector<int64_t>& sequence_lengths,
                                                 int64_t tokens_per_step, uint64_t seed) {
  require_drawable(sequence_lengths, tokens_per_step);
  return plan::stratified_batches(sequence_lengths, {.tokens_per_step = tokens_per_step, .seed = seed});
}

void check_lanes(const std::vector<strategy::Strategy>& candidates, const plan::Method& method) {
  if (method.plans_lanes()) return;
  for (const strategy::Strategy& candidate : candidates) {
    for (const strategy::Pipeline& pipeline : candidate.pipelines) {
      if (pipeline.scheme.cp == 1) continue;
      throw InputError(
          text("strategy '", to_text(candidate),
               "' has lanes, which method paper does not know: plan with method ours or leave it out"));
    }
  }
}

std::vector<plan::Proposal> propose(const PlanningTask& task) {
  check_proposing(task.choices);
  if (task.sample_batches.empty())
    throw InputError("there is no strategy to plan with: name one as strategies");
  const std::vector<strategy::MemoryPolicy>& policies = task.choices.policies;
  auto proposals = propose_under(policies.empty() ? task.cost : task.cost.under(policies.front()), task);
  if (proposals) return std::move(*proposals);
  const auto schemes = plan::roomy_schemes(task.cost, task.world_size, most_lanes(task), most_share(task));
  const auto saving = policies_that_hold(task, schemes);
  for (size_t i = 1; i < saving.size(); ++i) {
    auto saved = propose_under(task.cost.under(saving[i]), task);
    if (saved) return std::move(*saved);
  }
  if (!task.choices.method->plans_fsdp()) return std::move(proposals).or_throw();
  throw base::InfeasibleError(refusal(task, schemes));
}

plan::Planner make_planner(const PlanningTask& task) {
  PlanningTask chosen = task;
  plan::Planner planner = planner_under(chosen);
  save_visits(chosen, planner);
  save_lanes(chosen, planner);
  return planner;
}

void require_context(const plan::Planner& planner, int64_t context_length) {
  if (planner.max_len_tokens() >= context_length) return;
  refuse_small_host(planner, context_length);
  const FitRequest request{
      .cost = planner.cost(), .world_size = planner.options().world_size, .length_tokens = context_length};
  throw base::InfeasibleError(text(
      "the corpus has sequences of ", context_length, " tokens, but no strategy holds more than ",
      planner.max_len_tokens(), ": ", way_out(request), "; or set memory.device_gib or data.context_length"));
}

std::vector<int> tensor_parallel_degrees(const model::Model& model,
                                         const std::vector<strategy::Strategy>& strategies, int most) {
  std::set<int> degrees;
  for (int tp = 1; tp <= most; tp *= 2) degrees.insert(tp);
  for (const strategy::Strategy& strategy : strategies) {
    for (const strategy::Pipeline& pipeline : strategy.pipelines) degrees.insert(pipeline.scheme.tp);
  }
  std::erase_if(degrees, [&](int tp) { return !model::tp_fault(model, tp).empty(); });
  return {degrees.begin(), degrees.end()};
}

}  // namespace sluice::session
