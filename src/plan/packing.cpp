#include "plan/packing.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "strategy/pass.h"

namespace sluice::plan {

UnitTimer::UnitTimer(const strategy::Pipeline& pipeline, const SchemeCost& scheme)
    : pipeline_(pipeline), scheme_(scheme), times_(pipeline, scheme.cost()), table_(pipeline.scheme.pp) {}

int64_t UnitTimer::makespan_ns(std::span<const strategy::Unit> units, int64_t limit_ns) {
  order_.clear();
  if (scheme_.scheme().share > 1) {
    table_.resize(0);
    strategy::PipelinePlan plan{.pipeline = pipeline_, .units = {units.begin(), units.end()}};
    for (strategy::Unit& unit : plan.units) choose_exchange(unit);
    for (const strategy::Pass& pass : strategy::passes(plan)) {
      order_.push_back(table_.units());
      table_.append(times_.of(plan, pass));
    }
  } else {
    for (const strategy::Unit& unit : units) order_.push_back(row_of(unit));
  }
  return recurrence_.makespan_ns(table_, order_, scheme_.scheme().cp, scheme_.credit_tokens(), limit_ns);
}

int UnitTimer::row_of(const strategy::Unit& unit) {
  content_.assign({unit.first_lane, unit.lanes});
  const auto add = [&](const std::vector<strategy::UnitSequence>& sequences) {
    content_.push_back(std::ssize(sequences));
    for (const strategy::UnitSequence& sequence : sequences) content_.push_back(sequence.length_tokens);
  };
  add(unit.sequences);
  std::ranges::for_each(unit.own, add);
  const auto [known, added] = rows_.try_emplace(content_, table_.units());
  if (added) {
    table_.resize(known->second + 1);
    times_.write(unit, exchange_of(unit), table_, known->second);
  }
  return known->second;
}

void UnitTimer::choose_exchange(strategy::Unit& unit) const {
  const cost::ExchangeChoice choice = exchange_of(unit);
  unit.exchange = choice.exchange;
  unit.nested_lanes = choice.nested_lanes;
}

strategy::PipelinePlan UnitTimer::plan(std::vector<strategy::Unit> units) const {
  strategy::PipelinePlan plan{
      .pipeline = pipeline_, .max_len_tokens = scheme_.lane_max_len_tokens(), .units = std::move(units)};
  for (size_t u = 0; u < plan.units.size(); ++u) {
    strategy::Unit& unit = plan.units[u];
    std::ranges::sort(unit.sequences, {}, &strategy::UnitSequence::sequence);
    for (auto& own : unit.own) std::ranges::sort(own, {}, &strategy::UnitSequence::sequence);
    plan.max_len_tokens = std::max(plan.max_len_tokens, unit.tokens());
    if (unit.lanes == 1) continue;
    choose_exchange(unit);
    unit.ring = static_cast<int>(u);
  }
  plan.units = strategy::in_injection_order(std::move(plan.units), scheme_.scheme().cp);
  return plan;
}

Packing::Packing(const strategy::Pipeline& on, const SchemeCost& of, std::span<const int64_t> all_lengths,
                 std::span<const int> members, const PackOptions& with)
    : pipeline(on),
      scheme(of),
      options(with),
      nodes(node_runs(on, of.cost().options().topology)),
      timer(on, of) {
  for (const LaneRun& node : nodes) node_lanes = std::max(node_lanes, node.lanes);
  for (const int member : members) sequences.push_back({member, all_lengths[static_cast<size_t>(member)]});
  std::ranges::stable_sort(sequences, std::greater<>(), &strategy::UnitSequence::length_tokens);
  for (const strategy::UnitSequence& sequence : sequences) lengths.push_back(sequence.length_tokens);
}

}  // namespace sluice::plan
