#include "plan/few_units.h"

#include <algorithm>
#include <span>
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

void start_from_few_units(const Packing& packing, int64_t most_cells, UnitImprover& improver,
                          TimedUnits& best) {
  const auto start = [&](int lanes, bool ring) {
    TimedUnits next{.units = few_units(packing.sequences, lanes, ring)};
    const bool fit = std::ranges::all_of(next.units, [&](const strategy::Unit& unit) {
      return unit.tokens() <= packing.scheme.lane_max_len_tokens();
    });
    if (!fit || best.makespan_ns <= packing.options.enough_ns) return;
    next.makespan_ns = improver.makespan_ns(next.units, schedule::Recurrence::kLate - 1);
    improver.improve(next, most_cells);
    if (next.makespan_ns < best.makespan_ns) best = std::move(next);
  };
  const auto count = static_cast<int>(packing.sequences.size());
  for (const int lanes : improver.widths()) {
    if (lanes <= count) start(lanes, false);
    if (lanes > 1 && count > 0 && packing.length(0) >= int64_t{2} * lanes) start(lanes, true);
  }
}

}  // namespace sluice::plan
