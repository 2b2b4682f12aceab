#include "plan/planner.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/never.h"
#include "base/text.h"
#include "cost/cut_stages.h"
#include "model/program.h"
#include "plan/relax.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::plan {
namespace {

using base::InputError;
using base::text;
using strategy::Pipeline;
using strategy::Sequence;
using strategy::StepPlan;
using strategy::Strategy;

void check_candidate(const Strategy& candidate, const PlannerOptions& options, const cost::CostModel& cost) {
  const std::string name = text("strategy '", to_text(candidate), "': ");
  if (candidate.pipelines.empty())
    throw InputError(name + "it has no pipeline: give it one, such as 1x<1,1,1>");
  strategy::validate(candidate, options.world_size);
  for (const Pipeline& pipeline : candidate.pipelines) {
    const strategy::Scheme& scheme = pipeline.scheme;
    const std::string fault = model::cut_fault(cost.options().model, scheme.tp, scheme.pp, scheme.ep);
    if (!fault.empty()) throw InputError(text(name, to_text(scheme), ": ", fault));
    if (scheme.fsdp > 1 && !options.method->plans_fsdp()) {
      throw InputError(text(name, "this method knows nothing of lanes that share parameters: leave the ",
                            scheme.fsdp, " of ", to_text(scheme), " out, or plan with method 'ours'"));
    }
  }
}

// The scheme with the fewest ranks, at most `world_size`, that holds
// a sequence of `length`; ties go to the one with the fewest lanes.
std::optional<strategy::Scheme> smallest_scheme(int64_t length, int world_size, const cost::CostModel& cost) {
  std::vector<strategy::Scheme> schemes;
  for (strategy::Scheme scheme : cost.schemes(world_size)) {
    for (; scheme.ranks() <= world_size; scheme.cp *= 2) schemes.push_back(scheme);
  }
  std::ranges::stable_sort(
      schemes, {}, [](const strategy::Scheme& scheme) { return std::pair(scheme.ranks(), scheme.cp); });
  const auto found = std::ranges::find_if(schemes, [&](const strategy::Scheme& scheme) {
    return SchemeCost(scheme, cost, world_size).max_len_tokens() >= length;
  });
  return found == schemes.end() ? std::nullopt : std::optional(*found);
}

}  // namespace

namespace {

// Attended pairs of tokens over the squares of the sequences' lengths, in millionths.
int64_t attended_ppm(const std::vector<Sequence>& sequences) {
  cost::Work attended, all;
  for (const Sequence& sequence : sequences) {
    const int64_t length = sequence.length_tokens;
    attended += cost::Work::of_lane(length, strategy::micro_batch_sequence(0, sequence), 1);
    all += cost::Work::of_lane(length, length, 1);
  }
  return std::clamp<int64_t>(static_cast<int64_t>(attended.squares * 1'000'000 / all.squares), 1, 999'999);
}

// Adds the sequences' branches to a plan made without them, and times the plan anew.
void add_branches(const std::vector<Sequence>& sequences, const cost::CostModel& cost, int world_size,
                  StepPlan& plan) {
  plan.sequences = sequences;
  plan.lower_bound_ns = 0;
  plan.bounded_by.reset();
  plan.estimated_ns = 0;
  const auto add = [&](strategy::MicroBatchSequence& of) {
    of = strategy::micro_batch_sequence(of.sequence, sequences[static_cast<size_t>(of.sequence)]);
  };
  for (strategy::PipelinePlan& pipeline : plan.pipelines) {
    for (strategy::PipelineMicroBatch& micro_batch : pipeline.micro_batches) {
      std::ranges::for_each(micro_batch.sequences, add);
      for (auto& own : micro_batch.own) std::ranges::for_each(own, add);
    }
    const schedule::PipelineLoad load = schedule::pipeline_load(pipeline, cost, world_size);
    plan.estimated_ns = std::max(plan.estimated_ns, schedule::schedule_pipeline(load).makespan_ns);
  }
}

}  // namespace

void complete(StepPlan& plan, const cost::CostModel& cost) {
  set_policy(plan, cost.policy());
  for (strategy::PipelinePlan& pipeline : plan.pipelines) {
    const strategy::Scheme& scheme = pipeline.pipeline.scheme;
    if (scheme.pp > 1) pipeline.stage_layers = cost::stage_layers(cost, scheme);
  }
}

StepPlan plan_of(std::vector<Sequence> sequences, const std::vector<PackedPipeline>& packed,
                 const cost::CostModel& cost) {
  StepPlan plan{.sequences = std::move(sequences), .estimated_ns = last_end_ns(packed)};
  for (const PackedPipeline& pipeline : packed) plan.pipelines.push_back(pipeline.plan);
  complete(plan, cost);
  return plan;
}

Planner::Planner(PlannerOptions options, cost::CostModel cost)
    : options_(std::move(options)), cost_(std::move(cost)) {
  const auto count = static_cast<int>(options_.candidates.size());
  if (count == 0) throw InputError("there is no strategy to plan with: name one in parallel.strategies");
  if (options_.selection == Selection::kFixed &&
      (options_.fixed_candidate < 0 || options_.fixed_candidate >= count)) {
    throw InputError(text("strategy ", options_.fixed_candidate, " is selected but there are ", count,
                          ": number them from 0"));
  }
  if (!options_.devices.empty()) {
    for (Strategy& candidate : options_.candidates)
      candidate = strategy::on_devices(std::move(candidate), options_.devices);
  }
  if (!options_.policies.empty()) cost_ = cost_.under(options_.policies.front());
  for (size_t i = 1; i < options_.policies.size(); ++i) {
    PlannerOptions further = options_;
    further.policies = {options_.policies[i]};
    fallbacks_.emplace_back(std::move(further), cost_);
  }
  for (const Strategy& candidate : options_.candidates) check_candidate(candidate, options_, cost_);
  schemes_ = SchemeCosts(options_.candidates, cost_, options_.world_size);
  for (const Strategy& candidate : options_.candidates) {
    least_beside_ns_.push_back(
        options_.step_overhead ? options_.step_overhead->least_ns(candidate, cost_, options_.world_size) : 0);
  }
}

int64_t Planner::max_len_tokens(const Strategy& strategy) const {
  int64_t longest = 0;
  for (const Pipeline& pipeline : strategy.pipelines) {
    longest = std::max(longest, schemes_.of(pipeline).max_len_tokens());
  }
  return longest;
}

int64_t Planner::max_len_tokens() const {
  int64_t longest = 0;
  for (const Strategy& candidate : options_.candidates)
    longest = std::max(longest, max_len_tokens(candidate));
  for (const Planner& fallback : fallbacks_) longest = std::max(longest, fallback.max_len_tokens());
  return longest;
}

std::vector<size_t> Planner::preference(int64_t step) const {
  const size_t count = options_.candidates.size();
  if (options_.selection == Selection::kFixed) return {static_cast<size_t>(options_.fixed_candidate)};
  const size_t first = options_.selection == Selection::kCycle ? static_cast<size_t>(step) % count : 0;
  std::vector<size_t> order;
  for (size_t i = 0; i < count; ++i) order.push_back((first + i) % count);
  return order;
}

std::optional<StepPlan> Planner::plan_under_policy(int64_t step,
                                                   const std::vector<Sequence>& sequences) const {
  std::optional<StepPlan> plan = options_.method->plan(*this, step, sequences);
  if (plan) complete(*plan, cost_);
  return plan;
}

std::optional<StepPlan> Planner::plan_under_further_policies(int64_t step,
                                                             const std::vector<Sequence>& sequences) const {
  std::optional<StepPlan> best;
  int64_t best_ns = base::kNever;
  for (const Planner& fallback : fallbacks_) {
    std::optional<StepPlan> plan = fallback.plan_under_policy(step, sequences);
    if (!plan) continue;
    relax_policies(*plan, cost_, options_.world_size);
    if (!options_.step_overhead) return plan;
    const int64_t step_ns = plan->estimated_ns + step_overhead_ns(*plan);
    if (step_ns >= best_ns) continue;
    best_ns = step_ns;
    best = std::move(plan);
  }
  return best;
}

base::Feasible<StepPlan> Planner::try_plan(int64_t step, const std::vector<Sequence>& sequences) const {
  SLUICE_ASSERT(step >= 0, text("step ", step));
  if (std::ranges::any_of(sequences, [](const Sequence& s) { return !s.branches.empty(); }))
    return plan_branches(step, sequences);
  if (std::optional<StepPlan> plan = plan_under_policy(step, sequences)) return std::move(*plan);
  if (std::optional<StepPlan> plan = plan_under_further_policies(step, sequences)) return std::move(*plan);
  return (fallbacks_.empty() ? *this : fallbacks_.back()).none_of(step, sequences);
}

base::Feasible<StepPlan> Planner::plan_branches(int64_t step, const std::vector<Sequence>& sequences) const {
  std::vector<Sequence> bare = sequences;
  for (Sequence& sequence : bare) sequence.branches.clear();
  cost::Conditions attended = cost_.conditions();
  attended.attended_ppm = attended_ppm(sequences);
  const Planner by_length(options_, cost_.under(std::move(attended)));
  base::Feasible<StepPlan> plan = by_length.try_plan(step, bare);
  if (plan) add_branches(sequences, cost_, options_.world_size, *plan);
  return plan;
}

base::Infeasible Planner::none_of(int64_t step, const std::vector<Sequence>& sequences) const {
  const auto longest = std::max_element(
      sequences.begin(), sequences.end(),
      [](const Sequence& a, const Sequence& b) { return a.length_tokens < b.length_tokens; });
  const std::vector<size_t> allowed = preference(step);
  const size_t roomiest = *std::ranges::max_element(
      allowed, {}, [&](size_t candidate) { return max_len_tokens(options_.candidates[candidate]); });
  const std::string name = to_text(options_.candidates[roomiest]);
  const int64_t most = max_len_tokens(options_.candidates[roomiest]);
  const std::string fault = most == 0 ? text("'", name, "' has no room left beside the model")
                                      : text("'", name, "' holds ", base::human_count(most),
                                             allowed.size() > 1 ? ", the most of all strategies" : "");
  const auto smallest = smallest_scheme(longest->length_tokens, options_.world_size, cost_);
  const auto holds = [&](const Strategy& candidate) {
    return max_len_tokens(candidate) >= longest->length_tokens;
  };
  const auto other = std::ranges::find_if(options_.candidates, holds);
  const std::string way_out =
      most < longest->length_tokens && other != options_.candidates.end()
          ? text("parallel.select = \"best\" may take '", to_text(*other), "', which holds it")
      : smallest
          ? text("add a strategy with ", to_text(*smallest),
                 ", the smallest scheme that holds it, or lower the context length")
          : text("no scheme on ", base::human_count(options_.world_size, "rank", "ranks"),
                 " holds it: take more ranks or devices with more memory, or lower the context length");
  return {text("document ", longest->document, " has a sequence of ",
               base::human_count(longest->length_tokens, "token", "tokens"), " but ", fault, ": ", way_out)};
}

}  // namespace sluice::plan
