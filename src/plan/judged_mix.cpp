#include "plan/judged_mix.h"

#include <algorithm>
#include <utility>

#include "plan/batch_sample.h"
#include "plan/planner.h"

namespace sluice::plan {
namespace {

constexpr size_t kProbes = 3;

int64_t scaled(int64_t value, int64_t numerator, int64_t denominator) {
  return static_cast<int64_t>(cost::Wide{value} * numerator / denominator);
}

}  // namespace

JudgingInputs::JudgingInputs(const PlannerOptions& given, int world_size, std::vector<SchemeCost> usable,
                             const std::vector<std::vector<int64_t>>& sample_batches,
                             const cost::CostModel& model)
    : options(given),
      ranks(world_size),
      cost(model),
      seeds(comparing_seeds(given, world_size)),
      coarse(world_size > kMostThoroughRanks),
      schemes(std::move(usable)),
      fluid(schemes, sample_batches) {
  for (const SchemeCost& scheme : schemes) by_scheme.add(scheme);
  for (const std::vector<int64_t>& lengths : sample_batches) batches.emplace_back(lengths);
}

int64_t JudgingInputs::min_step_overhead_ns(const Mix& mix) const {
  if (!options.step_overhead) return 0;
  const strategy::Strategy strategy = strategy_of(mix, schemes, ranks);
  const auto make = [&] { return options.step_overhead->least_ns(strategy, cost, ranks); };
  return options.known_steps ? options.known_steps->least_beside_ns(strategy, cost.policy(), make) : make();
}

int64_t PlannedPart::planned(int64_t estimate_ns) const {
  return known() ? scaled(estimate_ns, planned_ns, fluid_ns) + step_overhead_ns : estimate_ns;
}

int64_t PlannedPart::estimate(int64_t time_ns) const {
  return known() ? scaled(std::max<int64_t>(0, time_ns - step_overhead_ns), fluid_ns, planned_ns) : time_ns;
}

bool PlannedPart::operator<(const PlannedPart& other) const {
  return cost::Wide{planned_ns} * other.fluid_ns < cost::Wide{other.planned_ns} * fluid_ns;
}

JudgedMix::JudgedMix(Mix mix, const JudgingInputs& inputs)
    : mix_(std::move(mix)),
      strategy_(strategy_of(mix_, inputs.schemes, inputs.ranks)),
      max_len_tokens_(plan::max_len_tokens(mix_, inputs.schemes)),
      inputs_(&inputs),
      least_ns_(inputs.batches.size(), 0),
      planned_(inputs.batches.size(), false) {
  for (size_t b = 0; b < inputs.batches.size(); ++b) fluid_ns_.push_back(inputs.fluid.estimate_ns(b, mix_));
}

int64_t JudgedMix::time_ns(size_t batch, const PlannedPart& others) const {
  return planned_[batch] ? least_ns_[batch] : unplanned_ns(batch, own_or(others));
}

int64_t JudgedMix::unplanned_ns(size_t batch, const PlannedPart& as) const {
  if (!holds(batch)) return cost::kLongestNs;
  return std::max(as.planned(fluid_ns_[batch]), least_ns_[batch]);
}

int64_t JudgedMix::total_with(const std::vector<int64_t>& best_ns, const PlannedPart& others) const {
  int64_t total_ns = 0;
  for (size_t b = 0; b < best_ns.size(); ++b) total_ns += std::min(best_ns[b], time_ns(b, others));
  return total_ns;
}

std::vector<size_t> JudgedMix::winnable(const std::vector<int64_t>& best_ns, const PlannedPart& as) const {
  std::vector<size_t> found;
  for (size_t b = 0; b < best_ns.size(); ++b) {
    if (!planned_[b] && unplanned_ns(b, as) < best_ns[b]) found.push_back(b);
  }
  return found;
}

void JudgedMix::plan(size_t batch, int64_t limit_ns, int64_t losing_ns) {
  CandidateSearch search(strategy_, inputs_->by_scheme, inputs_->batches[batch], inputs_->seeds);
  if (!least_beside_ns_) least_beside_ns_ = inputs_->min_step_overhead_ns(mix_);
  least_ns_[batch] = *search.lower_bound_ns() + *least_beside_ns_;
  if (least_ns_[batch] >= limit_ns) return;
  const QuickStep step = planned_step(batch, losing_ns, search);
  least_ns_[batch] = step.end_ns + step.beside_ns;
  planned_[batch] = true;
  planned_beside_ns_ += step.beside_ns;
  const PlannedPart part{
      .planned_ns = step.end_ns, .fluid_ns = fluid_ns_[batch], .step_overhead_ns = step.beside_ns};
  if (!least_part_.known() || part < least_part_) least_part_ = part;
  part_.planned_ns += part.planned_ns;
  part_.fluid_ns += part.fluid_ns;
  part_.step_overhead_ns = planned_beside_ns_ / planned_batches();
}

QuickStep JudgedMix::planned_step(size_t batch, int64_t losing_ns, CandidateSearch& search) const {
  const auto make = [&] {
    const std::vector<PackedPipeline>& packed = search.run(Effort::kQuick);
    if (search.end_ns() + *least_beside_ns_ >= losing_ns)
      return QuickStep{search.end_ns(), *least_beside_ns_};
    return QuickStep{search.end_ns(), beside_ns(batch, packed)};
  };
  KnownSteps* const known = inputs_->options.known_steps.get();
  return known ? known->step(strategy_, inputs_->cost.policy(), batch, make) : make();
}

int64_t JudgedMix::beside_ns(size_t batch, const std::vector<PackedPipeline>& packed) const {
  if (!inputs_->options.step_overhead) return 0;
  const strategy::StepPlan plan =
      plan_of(sequences_of(inputs_->batches[batch].lengths), packed, inputs_->cost);
  return inputs_->options.step_overhead->of_plan_ns(plan, inputs_->cost, inputs_->ranks);
}

void JudgedMix::probe(const std::vector<int64_t>& best_ns, const PlannedPart& others,
                      const LosingTimes& losing) {
  probed_ = true;
  const std::vector<size_t> batches = winnable(best_ns, own_or(others));
  for (const size_t place : spread(batches.size(), kProbes)) {
    if (part_.known() && total_with(best_ns, others) >= losing.total_ns) return;
    const size_t batch = batches[place];
    plan(batch, best_ns[batch], losing.step_ns(batch));
  }
}

void JudgedMix::probe_held(const std::vector<int64_t>& hopeless_ns, const LosingTimes& losing) {
  std::vector<size_t> held;
  for (size_t b = 0; b < planned_.size(); ++b) {
    if (!planned_[b] && holds(b)) held.push_back(b);
  }
  for (const size_t place : spread(held.size(), kProbes)) {
    const size_t batch = held[place];
    plan(batch, hopeless_ns[batch], losing.step_ns(batch));
    if (planned_[batch] && least_ns_[batch] >= losing.step_ns(batch)) break;
  }
  probed_ = part_.known() || held.empty();
}

void JudgedMix::plan_winnable(const std::vector<int64_t>& best_ns, const PlannedPart& others,
                              int64_t limit_ns) {
  probed_ = true;
  while (total_with(best_ns, others) < limit_ns) {
    const std::vector<size_t> batches = winnable(best_ns, least_part_.known() ? least_part_ : others);
    if (batches.empty()) return;
    const size_t batch = batches[batches.size() / 2];
    plan(batch, best_ns[batch]);
  }
}

}  // namespace sluice::plan
