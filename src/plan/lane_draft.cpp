#include "plan/lane_draft.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace sluice::plan {
namespace {

std::vector<int> injection_order(const LaneDraft& draft) {
  std::optional<std::vector<int>> order = strategy::injection_order(draft.lanes);
  SLUICE_ASSERT(order, "units of a pipeline cross");
  return std::move(*order);
}

}  // namespace

int LaneDraft::append(strategy::Unit unit) {
  const int index = static_cast<int>(units.size());
  for (int lane = unit.first_lane; lane < unit.first_lane + unit.lanes; ++lane) {
    lanes[static_cast<size_t>(lane)].push_back(index);
  }
  units.push_back(std::move(unit));
  if (units.back().lanes > 1) units.back().ring = index;
  return index;
}

cost::ExchangeChoice LaneDrafting::exchange_of(const strategy::Unit& unit) const {
  return times_.cheapest_exchange(unit, scheme_.lane_max_len_tokens());
}

int64_t LaneDrafting::makespan_ns(const LaneDraft& draft) const { return std::ranges::max(ends_ns(draft)); }

std::vector<int64_t> LaneDrafting::ends_ns(const LaneDraft& draft) const {
  schedule::UnitTable table(scheme_.scheme().pp);
  table.resize(static_cast<int>(draft.units.size()));
  for (int row = 0; row < table.units(); ++row) {
    const strategy::Unit& unit = draft.units[static_cast<size_t>(row)];
    times_.write(unit, exchange_of(unit), table, row);
  }
  schedule::Recurrence recurrence;
  recurrence.makespan_ns(table, injection_order(draft), static_cast<int>(draft.lanes.size()),
                         scheme_.credit_tokens());
  return recurrence.ends_ns();
}

strategy::PipelinePlan LaneDrafting::plan(LaneDraft draft) const {
  strategy::PipelinePlan plan{.pipeline = pipeline_,
                              .max_len_tokens = scheme_.lane_max_len_tokens(),
                              .units = in_injection_order(std::move(draft.units), draft.lanes)};
  for (strategy::Unit& unit : plan.units) {
    std::ranges::sort(unit.sequences, {}, &strategy::UnitSequence::sequence);
    for (auto& lane : unit.own) std::ranges::sort(lane, {}, &strategy::UnitSequence::sequence);
    plan.max_len_tokens = std::max(plan.max_len_tokens, unit.tokens());
    const cost::ExchangeChoice choice = exchange_of(unit);
    unit.exchange = choice.exchange;
    unit.nested_lanes = choice.nested_lanes;
  }
  return plan;
}

}  // namespace sluice::plan
