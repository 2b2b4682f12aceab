#include "plan/few_units.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

namespace sluice::plan {
namespace {

// Where constants are most of the time as few units as can be are the best: sequences, longest first, on so
// many lanes, each to the lane that has least. Either one unit a lane, or a single ring with the longest on
// all of them and the rest whole.
std::vector<strategy::Unit> few_units(std::span<const strategy::UnitSequence> sequences, int lanes,
                                      bool ring) {
  std::vector<int64_t> tokens(static_cast<size_t>(lanes), 0);
  std::vector<std::vector<strategy::UnitSequence>> dealt(tokens.size());
  for (const strategy::UnitSequence& sequence : sequences.subspan(ring ? 1 : 0)) {
    const auto least = std::ranges::min_element(tokens) - tokens.begin();
    tokens[static_cast<size_t>(least)] += sequence.length_tokens;
    dealt[static_cast<size_t>(least)].push_back(sequence);
  }
  std::vector<strategy::Unit> units;
  if (ring) {
    units.push_back({.lanes = lanes, .sequences = {sequences.front()}, .own = std::move(dealt)});
    if (sequences.size() == 1) units.back().own.clear();
    return units;
  }
  for (int lane = 0; lane < lanes; ++lane)
    units.push_back({.first_lane = lane, .sequences = std::move(dealt[static_cast<size_t>(lane)])});
  return units;
}

}  // namespace

void start_from_few_units(const SchemeCost& scheme, std::span<const int64_t> lengths,
                          std::span<const int> members, const ImproverLimits& limits, UnitImprover& improver,
                          TimedUnits& best) {
  std::vector<strategy::UnitSequence> sequences;
  for (const int member : members) sequences.push_back({member, lengths[static_cast<size_t>(member)]});
  std::ranges::stable_sort(sequences, std::greater<>(), &strategy::UnitSequence::length_tokens);
  const auto start = [&](int lanes, bool ring) {
    TimedUnits next{.units = few_units(sequences, lanes, ring)};
    const bool fit = std::ranges::all_of(next.units, [&](const strategy::Unit& unit) {
      return unit.tokens() <= scheme.lane_max_len_tokens();
    });
    if (!fit || best.makespan_ns <= limits.enough_ns) return;
    next.makespan_ns = improver.makespan_ns(next.units, schedule::Recurrence::kLate - 1);
    improver.improve(next, limits.enough_ns, limits.most_cells);
    if (next.makespan_ns < best.makespan_ns) best = std::move(next);
  };
  const auto count = static_cast<int>(sequences.size());
  for (int lanes = 1; lanes <= scheme.scheme().cp; ++lanes) {
    if (lanes <= count) start(lanes, false);
    if (lanes > 1 && count > 0 && sequences.front().length_tokens >= int64_t{2} * lanes) start(lanes, true);
  }
}

}  // namespace sluice::plan
