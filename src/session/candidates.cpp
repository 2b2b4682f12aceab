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
using plan::PlannerOptions;

void check_proposing(const PlannerOptions& options) {
  if (options.max_strategies < 1)
    throw InputError(text("max_strategies is ", options.max_strategies, ": give 1 or more"));
  if (options.max_cp < 0) throw InputError(text("max_cp is ", options.max_cp, ": give 1 or more"));
  if (!options.method->plans_lanes() && options.max_cp > 1) {
    throw InputError(text("max_cp is ", options.max_cp,
                          " but the published algorithms know no lanes: leave it at 1 or propose with ours"));
  }
}

void check_selection(const PlannerOptions& options) {
  const size_t candidates = options.candidates.size();
  if (options.selection != plan::Selection::kFixed) return;
  if (options.fixed_candidate >= 0 && static_cast<size_t>(options.fixed_candidate) < candidates) return;
  throw InputError(text("parallel.select is ", options.fixed_candidate, ", but there are ", candidates,
                        " in parallel.strategies, counted from 0: choose a smaller one"));
}

// 0 stands for all ranks.
int most_of(bool planned, int asked, int world_size) { return !planned ? 1 : asked > 0 ? asked : world_size; }

base::Feasible<std::vector<plan::Proposal>> propose_under(const cost::CostModel& machine,
                                                          PlannerOptions& options) {
  const cost::CostModel cost = cost::choosing_from(machine, options.exchanges);
  options.step_overhead = clocked_step_overhead(options, cost);
  return options.method->propose(options, cost);
}

// If heads are the only allowed exchange, every lane needs a head: InputError instead of a silent ring.
void check_heads(const PlannerOptions& options, const cost::CostModel& cost) {
  const cost::ExchangeSet& exchanges = options.exchanges;
  if (exchanges.ring || exchanges.nested || exchanges.moves_queries()) return;
  const model::Model& model = cost.options().model;
  for (const strategy::Strategy& candidate : options.candidates) {
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

cost::CostModel under_first_policy(const PlannerOptions& options, const cost::CostModel& cost) {
  return options.policies.empty() ? cost : cost.under(options.policies.front());
}

// The options' policies. If the first one does not hold the context, the one under which a scheme holds it
// comes second; where that offloads, the one that only recomputes comes third, because shorter sequences hide
// fewer copies than those of the context's length, by which the shares are chosen.
std::vector<strategy::MemoryPolicy> policies_that_hold(const PlannerOptions& options,
                                                       const cost::CostModel& cost,
                                                       const std::vector<strategy::Scheme>& schemes) {
  const cost::CostModel first = under_first_policy(options, cost);
  if (!options.saves.any() || !options.method->plans_fsdp()) return options.policies;
  const bool held = std::ranges::any_of(schemes, [&](const strategy::Scheme& scheme) {
    const int64_t lane_tokens = cost::MemoryCost(first, scheme).max_len_tokens(options.world_size);
    return plan::longest_on(scheme.cp, lane_tokens) >= options.context_length;
  });
  if (held) return options.policies;
  const auto choice =
      plan::choose_memory(first, schemes, options.world_size, options.context_length, options.saves);
  if (!choice) return options.policies;
  std::vector<strategy::MemoryPolicy> policies{first.policy(), choice->policy};
  if (options.saves.recompute && choice->policy.offload_permille > first.policy().offload_permille) {
    const auto without_copies =
        plan::choose_memory(first, schemes, options.world_size, options.context_length, {.recompute = true});
    if (without_copies) policies.push_back(without_copies->policy);
  }
  for (size_t i = 1; i < options.policies.size(); ++i) {
    strategy::MemoryPolicy further = options.policies[i];
    further.offload_permille = std::max(further.offload_permille, choice->policy.offload_permille);
    if (std::ranges::find(policies, further) == policies.end()) policies.push_back(further);
  }
  return policies;
}

// The reason why no strategy holds the context under the options, and settings that would.
std::string refusal(const PlannerOptions& options, const cost::CostModel& cost,
                    const std::vector<strategy::Scheme>& schemes) {
  const cost::CostModel first = under_first_policy(options, cost);
  const int64_t longest = plan::longest_held(first, schemes, options.world_size, options.saves);
  const std::string ranks = base::human_count(options.world_size, "rank", "ranks");
  const std::string way =
      way_out({.cost = first, .world_size = options.world_size, .length_tokens = options.context_length});
  if (longest == 0) {
    return text("no scheme that the calibration knows holds the model on ", ranks,
                ": use more, or devices with more memory: ", way);
  }
  return text("no strategy on ", ranks, " holds context_length ", options.context_length,
              ": the longest that fits is ", longest, " tokens: ", way, "; or lower context_length");
}

plan::Planner planner_under(const PlannerOptions& asked, const cost::CostModel& machine) {
  PlannerOptions options = asked;
  const bool proposes = asked.candidates.empty();
  if (proposes) {
    options.candidates = asked.devices.empty() ? plan::strategies_of(session::propose(asked, machine))
                                               : strategies_by_device(asked, machine, session::propose);
  }
  // A pipeline over ranks with different measurements counts as on its slowest rank (strategy::on_devices).
  if (options.devices_from == plan::DeviceSource::kDescribed)
    check_devices(options.candidates, options.devices);
  check_lanes(options.candidates, *options.method);
  if (!proposes) check_heads(options, machine);
  check_selection(options);
  options.policies = policies_that_hold(options, machine, plan::schemes_of(options.candidates));
  options.sample_batches.clear();
  const cost::CostModel cost = cost::choosing_from(machine, options.exchanges);
  const bool chooses = options.candidates.size() > 1 && options.selection == plan::Selection::kBest;
  const bool has_clock = options.method == plan::ours() && (chooses || options.policies.size() > 2);
  if (has_clock) options.step_overhead = clocked_step_overhead(options, cost);
  return plan::Planner(std::move(options), cost);
}

// A batch's step by the clock; nothing if it is not held.
std::optional<ClockedStep> clocked_step(const plan::Planner& planner, const std::vector<int64_t>& lengths,
                                        const plan::StepOverhead& beside) {
  const base::Feasible<strategy::StepPlan> plan = planner.try_plan(0, plan::sequences_of(lengths));
  if (!plan) return std::nullopt;
  const int64_t beside_ns = beside.of_plan_ns(*plan, planner.cost(), planner.options().world_size);
  return ClockedStep{.planned_ns = plan->estimated_ns, .step_ns = plan->estimated_ns + beside_ns};
}

// The compared batches by the clock, which counts copies.
struct ClockedSteps {
  std::vector<ClockedStep> steps;
  std::optional<int64_t> sum_ns = 0;  // nothing if a batch is not held
};

ClockedSteps clocked_steps(const plan::Planner& planner, const PlannerOptions& options) {
  const auto beside = clocked_step_overhead(options, planner.cost());
  ClockedSteps clocked;
  for (const size_t batch : compared_batches(options)) {
    std::optional<ClockedStep> step = clocked_step(planner, options.sample_batches[batch], *beside);
    if (!step) return {.steps = {}, .sum_ns = std::nullopt};
    step->batch = batch;
    *clocked.sum_ns += step->step_ns;
    clocked.steps.push_back(*step);
  }
  return clocked;
}

// A planner and the options that it was made with, whose policies may change.
struct Chosen {
  PlannerOptions options;
  const cost::CostModel& cost;
  plan::Planner planner = planner_under(options, cost);
  // The planner's, once they were asked for.
  std::optional<ClockedSteps> known_steps = std::nullopt;

  // Whether a run may use another first policy than its first configured one.
  bool chooses_policy() const {
    return !options.policies.empty() && options.method == plan::ours() && !options.sample_batches.empty();
  }
  // Takes the policies if steps of sample batches then end sooner.
  void plan_under_if_sooner(std::vector<strategy::MemoryPolicy> policies) {
    PlannerOptions changed = options;
    changed.policies = std::move(policies);
    plan::Planner other = planner_under(changed, cost);
    if (!known_steps) known_steps = clocked_steps(planner, options);
    const std::optional<int64_t> before_ns = known_steps->sum_ns;
    if (!before_ns) return;
    ClockedSteps after = clocked_steps(other, options);
    if (!after.sum_ns || *after.sum_ns >= *before_ns - *before_ns / plan::kNegligiblePart) return;
    planner = std::move(other);
    options = std::move(changed);
    known_steps = std::move(after);
  }
};

// Recomputes the experts' results of dispatched rows, if that lets lanes hold more and shortens steps.
void save_visits(Chosen& chosen) {
  const auto travels = [](const strategy::Strategy& candidate) {
    return std::ranges::any_of(candidate.pipelines,
                               [](const auto& pipeline) { return pipeline.scheme.ep > 1; });
  };
  if (!chosen.chooses_policy() || std::ranges::none_of(chosen.planner.options().candidates, travels)) return;
  std::vector<strategy::MemoryPolicy> policies = chosen.options.policies;
  for (strategy::MemoryPolicy& policy : policies) policy.recompute_dispatch = !policy.recomputes();
  chosen.plan_under_if_sooner(std::move(policies));
}

// Offloads the share that is always hidden, if that shortens steps.
void save_lanes(Chosen& chosen) {
  const PlannerOptions& options = chosen.options;
  if (!chosen.chooses_policy() || !options.saves.offload || !options.offload_saves_lanes) return;
  std::vector<strategy::MemoryPolicy> policies = options.policies;
  policies.front().offload_permille = plan::hidden_permille(
      chosen.cost.under(policies.front()), chosen.planner.options().candidates, options.world_size);
  if (policies.front().offload_permille > 0) chosen.plan_under_if_sooner(std::move(policies));
}

void refuse_small_host(const plan::Planner& planner, int64_t length) {
  const PlannerOptions& options = planner.options();
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

std::function<void(int64_t, int64_t)> told_in_words(std::function<void(const std::string& how_far)> tell) {
  if (!tell) return {};
  return [tell = std::move(tell)](int64_t strategies, int64_t steps) {
    tell(text(base::human_count(strategies, "strategy", "strategies"), " compared in ",
              base::human_count(steps, "planned step", "planned steps")));
  };
}

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

std::vector<plan::Proposal> propose(const PlannerOptions& asked, const cost::CostModel& cost) {
  check_proposing(asked);
  if (asked.sample_batches.empty())
    throw InputError("there is no strategy to plan with: name one as strategies");
  PlannerOptions options = asked;
  options.max_cp = most_of(asked.method->plans_lanes(), asked.max_cp, asked.world_size);
  options.max_fsdp = most_of(asked.method->plans_fsdp(), asked.max_fsdp, asked.world_size);
  auto proposals = propose_under(under_first_policy(options, cost), options);
  if (proposals) return std::move(*proposals);
  const auto schemes = plan::roomy_schemes(cost, options.world_size, options.max_cp, options.max_fsdp);
  const auto saving = policies_that_hold(options, cost, schemes);
  for (size_t i = 1; i < saving.size(); ++i) {
    auto saved = propose_under(cost.under(saving[i]), options);
    if (saved) return std::move(*saved);
  }
  if (!options.method->plans_fsdp()) return std::move(proposals).or_throw();
  throw base::InfeasibleError(refusal(options, cost, schemes));
}

std::vector<size_t> compared_batches(const PlannerOptions& options) {
  constexpr size_t kMost = 8, kMostByQuickPlans = 3;
  return plan::spread_within(options.sample_batches, plan::kMostSampleTokens,
                             options.effort == plan::Effort::kQuick ? kMostByQuickPlans : kMost);
}

std::optional<int64_t> clocked_step_ns(const plan::Planner& planner, const std::vector<int64_t>& lengths,
                                       const plan::StepOverhead& beside) {
  const std::optional<ClockedStep> step = clocked_step(planner, lengths, beside);
  return step ? std::optional(step->step_ns) : std::nullopt;
}

ComparedPlanner make_compared_planner(const PlannerOptions& options, const cost::CostModel& cost) {
  Chosen chosen{options, cost};
  save_visits(chosen);
  save_lanes(chosen);
  if (!chosen.known_steps) return {std::move(chosen.planner), std::nullopt};
  return {std::move(chosen.planner), chosen.known_steps->sum_ns, std::move(chosen.known_steps->steps)};
}

const ComparedPlanner& ComparedPlanners::of(const strategy::Strategy& strategy, PlannerOptions options,
                                            const cost::CostModel& cost) {
  for (const auto& [known, compared] : known_) {
    if (known == strategy) return *compared;
  }
  options.candidates = {strategy};
  options.selection = plan::Selection::kBest;
  auto made = std::make_unique<const ComparedPlanner>(make_compared_planner(options, cost));
  return *known_.emplace_back(strategy, std::move(made)).second;
}

plan::Planner make_planner(const PlannerOptions& options, const cost::CostModel& cost) {
  return make_compared_planner(options, cost).planner;
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
