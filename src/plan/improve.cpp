#include "plan/improve.h"

#include <algorithm>
#include <utility>

namespace sluice::plan {
namespace {

using strategy::Unit;
using strategy::UnitSequence;

std::vector<UnitSequence>& list_of(Unit& unit, int own) {
  if (own < 0) return unit.sequences;
  if (unit.own.empty()) unit.own.resize(static_cast<size_t>(unit.lanes));
  return unit.own[static_cast<size_t>(own)];
}

void drop_empty_lists(Unit& unit) {
  if (std::ranges::all_of(unit.own, [](const auto& lane) { return lane.empty(); })) unit.own.clear();
}

// To another place, where all of what lies between moves up.
void move_unit(std::vector<Unit>& units, size_t from, size_t to) {
  const auto begin = units.begin();
  const auto at = [&](size_t place) { return begin + static_cast<ptrdiff_t>(place); };
  if (from < to) std::rotate(at(from), at(from + 1), at(to + 1));
  if (to < from) std::rotate(at(to), at(from), at(from + 1));
}

}  // namespace

UnitImprover::UnitImprover(Packing& packing) : packing_(packing) {
  for (int width = 1; width < lanes(); width *= 2) widths_.push_back(width);
  widths_.push_back(lanes());
}

int64_t UnitImprover::makespan_ns(const std::vector<Unit>& units, int64_t limit_ns) {
  cells_ -= static_cast<int64_t>(units.size()) * packing_.scheme.scheme().pp;
  return packing_.timer.makespan_ns(units, limit_ns);
}

bool UnitImprover::consider(std::vector<Unit> units) {
  const int64_t ns = makespan_ns(units, best_->makespan_ns - 1);
  if (ns == schedule::Recurrence::kLate) return false;
  best_->units = std::move(units);
  best_->makespan_ns = ns;
  return true;
}

void UnitImprover::improve(TimedUnits& best, int64_t most_cells) {
  best_ = &best;
  cells_ = most_cells;
  while (!spent() && try_neighbours()) {
  }
}

bool UnitImprover::try_neighbours() {
  bool improved = move_units();
  improved |= move_sequences();
  return exchange_sequences() || improved;
}

bool UnitImprover::fits(const Unit& unit) const {
  if (unit.lanes > 1) {
    for (const UnitSequence& shared : unit.sequences) {
      if (shared.length_tokens < int64_t{2} * unit.lanes) return false;
    }
  }
  return unit.tokens() <= packing_.scheme.lane_max_len_tokens();
}

bool UnitImprover::move_units() {
  bool improved = false;
  for (size_t from = 0; from < best_->units.size() && !spent(); ++from) {
    for (size_t to = 0; to < best_->units.size() && !spent(); ++to) {
      std::vector<Unit> next = best_->units;
      move_unit(next, from, to);
      if (to != from) improved |= consider(next);
      if (lanes() == 1) continue;
      for (const int width : widths_) {
        const Unit& unit = best_->units[from];
        if (width != unit.lanes && !unit.own.empty()) continue;
        for (int first = 0; first + width <= lanes() && !spent(); ++first) {
          std::vector<Unit> placed = best_->units;
          move_unit(placed, from, to);
          Unit& moved = placed[to];
          if (width != moved.lanes && !moved.own.empty()) continue;  // not the one that stood there before
          if (moved.first_lane == first && moved.lanes == width) continue;
          moved.first_lane = first;
          moved.lanes = width;
          if (fits(moved)) improved |= consider(std::move(placed));
        }
      }
    }
  }
  return improved;
}

std::vector<UnitImprover::Spot> UnitImprover::spots() const {
  std::vector<Spot> spots;
  for (int u = 0; u < static_cast<int>(best_->units.size()); ++u) {
    Unit& unit = best_->units[static_cast<size_t>(u)];
    for (int own = -1; own < static_cast<int>(unit.own.size()); ++own) {
      const auto count = static_cast<int>(list_of(unit, own).size());
      for (int at = 0; at < count; ++at) spots.push_back({u, own, at});
    }
  }
  return spots;
}

UnitSequence UnitImprover::sequence(const Spot& spot) const {
  return list_of(best_->units[static_cast<size_t>(spot.unit)], spot.own)[static_cast<size_t>(spot.at)];
}

bool UnitImprover::take(std::vector<Unit>& units, const Spot& spot) {
  Unit& unit = units[static_cast<size_t>(spot.unit)];
  std::vector<UnitSequence>& list = list_of(unit, spot.own);
  list.erase(list.begin() + spot.at);
  drop_empty_lists(unit);
  if (!unit.sequences.empty()) return true;
  if (!unit.own.empty()) return false;
  units.erase(units.begin() + spot.unit);
  return true;
}

bool UnitImprover::move_sequences() {
  bool improved = false;
  for (size_t i = 0; i < spots().size() && !spent(); ++i) improved |= try_spots(spots()[i]);
  return improved;
}

// Everywhere else, until that is better.
bool UnitImprover::try_spots(const Spot& from) {
  const UnitSequence moved = sequence(from);
  std::vector<Unit> rest = best_->units;
  if (!take(rest, from)) return false;
  for (size_t u = 0; u < rest.size() && !spent(); ++u) {
    const int lists = rest[u].lanes > 1 ? rest[u].lanes : 0;
    for (int own = -1; own < lists && !spent(); ++own) {
      std::vector<Unit> next = rest;
      list_of(next[u], own).push_back(moved);
      if (fits(next[u]) && consider(std::move(next))) return true;
    }
  }
  for (size_t place = 0; place <= rest.size(); ++place) {
    for (const int width : widths_) {
      for (int first = 0; first + width <= lanes() && !spent(); ++first) {
        Unit unit{.first_lane = first, .lanes = width, .sequences = {moved}};
        if (!fits(unit)) break;
        std::vector<Unit> next = rest;
        next.insert(next.begin() + static_cast<ptrdiff_t>(place), std::move(unit));
        if (consider(std::move(next))) return true;
      }
    }
  }
  return false;
}

bool UnitImprover::exchange_sequences() {
  bool improved = false;
  const std::vector<Spot> all = spots();
  for (size_t i = 0; i < all.size() && !spent(); ++i) {
    for (size_t j = i + 1; j < all.size() && !spent(); ++j) {
      const Spot &a = all[i], &b = all[j];
      if (a.unit == b.unit && a.own == b.own) continue;
      std::vector<Unit> next = best_->units;
      Unit &unit_a = next[static_cast<size_t>(a.unit)], &unit_b = next[static_cast<size_t>(b.unit)];
      std::swap(list_of(unit_a, a.own)[static_cast<size_t>(a.at)],
                list_of(unit_b, b.own)[static_cast<size_t>(b.at)]);
      if (fits(unit_a) && fits(unit_b)) improved |= consider(std::move(next));
    }
  }
  return improved;
}

}  // namespace sluice::plan
