// Local search on the units of one pipeline, whatever its stages and lanes: what every packing ends with.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/packing.h"

namespace sluice::plan {

class UnitImprover {
 public:
  // Which must outlive it.
  explicit UnitImprover(Packing& packing);

  // Takes the first neighbour that ends sooner, again and again, until none does, it ends by
  // options.enough_ns, or neighbours of `most_cells` cells of a stage have been timed. Neighbours: a unit at
  // another place in the order or on other lanes; a sequence in another unit, shared by its lanes or whole on
  // one, or in a unit of its own anywhere; two sequences of different units exchanged. REQUIRES: every unit
  // fits its lanes.
  void improve(TimedUnits& best, int64_t most_cells);
  // As UnitTimer's.
  int64_t makespan_ns(const std::vector<strategy::Unit>& units, int64_t limit_ns);
  // Lanes of units that it tries, ascending: powers of two, and all.
  const std::vector<int>& widths() const { return widths_; }

 private:
  // Where a unit has a sequence: shared, or whole on its lane `own`.
  struct Spot {
    int unit = 0;
    int own = -1;
    int at = 0;  // index in that list
  };
  bool try_neighbours();
  bool move_units();
  bool move_sequences();
  bool exchange_sequences();
  bool try_spots(const Spot& from);
  std::vector<Spot> spots() const;
  strategy::UnitSequence sequence(const Spot& spot) const;
  // Takes a sequence out, and the unit if nothing is left. False where its lanes would have whole sequences
  // alone.
  static bool take(std::vector<strategy::Unit>& units, const Spot& spot);
  bool fits(const strategy::Unit& unit) const;
  // Whether it becomes the best.
  bool consider(std::vector<strategy::Unit> units);
  bool spent() const { return cells_ <= 0 || best_->makespan_ns <= packing_.options.enough_ns; }

  int lanes() const { return packing_.lanes(); }

  Packing& packing_;
  std::vector<int> widths_;
  // Of one question:
  TimedUnits* best_ = nullptr;
  int64_t cells_ = 0;  // left
};

}  // namespace sluice::plan
