// A laned pipeline's step while it is put together: its units, and which of them each lane runs, in order.
// All planners of lanes end here, so that their plans are built and scored alike.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/pack.h"
#include "schedule/recurrence.h"

namespace sluice::plan {

struct LaneDraft {
  explicit LaneDraft(int lane_count) : lanes(static_cast<size_t>(lane_count)) {}
  // Behind what its lanes have. Returns its index, which becomes its number.
  int append(strategy::Unit unit);

  std::vector<strategy::Unit> units;
  std::vector<std::vector<int>> lanes;  // units in order; one of several lanes stands in the list of each
};

// Scores drafts of one pipeline and makes plans of them. What it is made from must outlive it.
class LaneDrafting {
 public:
  LaneDrafting(const strategy::Pipeline& pipeline, const SchemeCost& scheme, const cost::CostModel& cost)
      : pipeline_(pipeline), scheme_(scheme), times_(pipeline, cost) {}

  // Of the schedule that will run. REQUIRES: units do not cross; each fits its lanes.
  int64_t makespan_ns(const LaneDraft& draft) const;
  // By lane, schedule::Recurrence::ends_ns. REQUIRES: as above.
  std::vector<int64_t> ends_ns(const LaneDraft& draft) const;
  // Sequences of a unit in ascending order, each unit of several lanes with the exchange that costs it least.
  // REQUIRES: as above.
  strategy::PipelinePlan plan(LaneDraft draft) const;

 private:
  cost::ExchangeChoice exchange_of(const strategy::Unit& unit) const;

  const strategy::Pipeline& pipeline_;
  const SchemeCost& scheme_;
  schedule::UnitTimes times_;
};

}  // namespace sluice::plan
