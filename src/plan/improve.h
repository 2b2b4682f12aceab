// Local search on the units of one pipeline, whatever its stages and lanes: what every packing ends with.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/scheme_cost.h"
#include "plan/seeds.h"
#include "schedule/pipeline_schedule.h"
#include "schedule/recurrence.h"
#include "schedule/unit_table.h"
#include "strategy/step_plan.h"

namespace sluice::plan {

// Units in the order of injection, and when the schedule that will run ends with them, each with the exchange
// that costs it least.
struct TimedUnits {
  std::vector<strategy::Unit> units;
  int64_t makespan_ns = 0;
};

class UnitImprover {
 public:
  // What it is made from must outlive it.
  UnitImprover(const strategy::Pipeline& pipeline, const SchemeCost& scheme, const cost::CostModel& cost,
               Seeds seeds = {});

  // Takes the first neighbour that ends sooner, again and again, until none does, it ends by `enough_ns`, or
  // neighbours of `most_cells` cells of a stage have been timed. Neighbours: a unit at another place in the
  // order or on other lanes; a sequence in another unit, shared by its lanes or whole on one, or in a unit of
  // its own anywhere; two sequences of different units exchanged. REQUIRES: every unit fits its lanes.
  void improve(TimedUnits& best, int64_t enough_ns, int64_t most_cells);
  // Of units in this order of injection; schedule::Recurrence::kLate above `limit_ns`.
  int64_t makespan_ns(const std::vector<strategy::Unit>& units, int64_t limit_ns);

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
  bool spent() const { return cells_ <= 0 || best_->makespan_ns <= enough_ns_; }

  const SchemeCost& scheme_;
  const Seeds seeds_;
  schedule::UnitTimes times_;
  schedule::UnitTable table_;
  schedule::Recurrence recurrence_;
  std::vector<int> order_;   // 0, 1, …
  std::vector<int> widths_;  // of new units
  // Of one question:
  TimedUnits* best_ = nullptr;
  int64_t enough_ns_ = 0;
  int64_t cells_ = 0;  // left
};

}  // namespace sluice::plan
