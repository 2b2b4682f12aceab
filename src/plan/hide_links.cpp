#include "plan/hide_links.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "plan/bins.h"

namespace sluice::plan {
namespace {

using strategy::Unit;

int64_t unit_ns(const SchemeCost& scheme, const Unit& unit) {
  cost::Work work;
  for (const strategy::UnitSequence& of : unit.sequences)
    work += scheme.share_of(of.length_tokens, unit.lanes);
  return scheme.unit_ns(work, unit.lanes);
}

// Whether the shortest unit that a lane begins with is shorter than the shortest that one ends with.
bool begin_shorter(const SchemeCost& scheme, const std::vector<Unit>& units) {
  int64_t first_ns = cost::kLongestNs, last_ns = cost::kLongestNs;
  for (const std::vector<int>& lane : strategy::units_by_lane(units, scheme.scheme().cp)) {
    if (lane.empty()) continue;
    first_ns = std::min(first_ns, unit_ns(scheme, units[static_cast<size_t>(lane.front())]));
    last_ns = std::min(last_ns, unit_ns(scheme, units[static_cast<size_t>(lane.back())]));
  }
  return first_ns < last_ns;
}

std::vector<Unit> reversed(std::vector<Unit> units) {
  std::ranges::reverse(units);
  int last = 0;
  for (const Unit& unit : units) last = std::max(last, unit.pass.value_or(0));
  for (Unit& unit : units) {
    if (unit.pass) unit.pass = last - *unit.pass;
  }
  return units;
}

// Some of the units, all on one lane; as they are where even ones have no room.
void even_out(std::span<const int> some, const SchemeCost& scheme, std::vector<Unit>& units) {
  std::vector<PackItem> items;
  std::vector<strategy::UnitSequence> sequences;
  for (const int u : some) {
    for (const strategy::UnitSequence& of : units[static_cast<size_t>(u)].sequences) {
      const auto index = static_cast<int>(sequences.size());
      items.push_back({index, of.length_tokens, scheme.sequence_ns(of.length_tokens)});
      sequences.push_back(of);
    }
  }
  std::ranges::stable_sort(items, std::greater<>(), &PackItem::work_ns);
  const std::optional<Bins> even =
      balance(items, static_cast<int>(some.size()), scheme.lane_max_len_tokens());
  if (!even) return;
  for (size_t bin = 0; bin < even->size(); ++bin) {
    Unit& unit = units[static_cast<size_t>(some[bin])];
    unit.sequences.clear();
    for (const int item : (*even)[bin]) {
      const int index = items[static_cast<size_t>(item)].sequence;
      unit.sequences.push_back(sequences[static_cast<size_t>(index)]);
    }
  }
}

void even_out_lanes(const SchemeCost& scheme, std::vector<Unit>& units) {
  for (const std::vector<int>& lane : strategy::units_by_lane(units, scheme.scheme().cp)) {
    const auto alone = [&](int u) { return units[static_cast<size_t>(u)].lanes == 1; };
    for (auto begin = lane.begin(); begin != lane.end();) {
      const auto end = std::find_if_not(begin, lane.end(), alone);
      if (end - begin > 1) even_out(std::span(begin, end), scheme, units);
      begin = std::find_if(end, lane.end(), alone);
    }
  }
}

}  // namespace

void hide_links(Packing& packing, TimedUnits& packed) {
  if (packing.scheme.scheme().pp > 1 || packed.units.size() < 2) return;
  TimedUnits next{.units = packed.units};
  if (begin_shorter(packing.scheme, next.units)) next.units = reversed(std::move(next.units));
  if (packing.scheme.scheme().share == 1) even_out_lanes(packing.scheme, next.units);
  next.units = strategy::in_injection_order(std::move(next.units), packing.lanes());
  const int64_t rounding_ns = 3 * std::ssize(next.units);  // of their cells
  next.makespan_ns = packing.timer.makespan_ns(next.units, packed.makespan_ns + rounding_ns);
  if (next.makespan_ns != schedule::Recurrence::kLate) packed = std::move(next);
}

}  // namespace sluice::plan
