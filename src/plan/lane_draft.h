// A laned pipeline's step while it is put together: which micro-batches and rings each lane runs, in order.
// All planners of lanes end here, so that their plans are built and scored alike.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/pack.h"
#include "schedule/pipeline_schedule.h"
#include "schedule/tied_makespan.h"

namespace sluice::plan {

// A micro-batch of one lane, or a ring: sequences that several lanes share.
struct LaneUnit {
  int first_lane = 0;
  int lanes = 1;
  std::vector<int> sequences;
  strategy::MemoryPolicy memory = {};
};

struct LaneDraft {
  explicit LaneDraft(int lane_count) : lanes(static_cast<size_t>(lane_count)) {}
  // Behind what its lanes have. Returns its index.
  int append(LaneUnit unit);

  std::vector<LaneUnit> units;
  std::vector<std::vector<int>> lanes;  // units in order; a ring stands in the list of each of its lanes
};

// Scores drafts of one pipeline and makes plans of them. What it is made from must outlive it.
class LaneDrafting {
 public:
  LaneDrafting(const strategy::Pipeline& pipeline, const SchemeCost& scheme, const cost::CostModel& cost,
               std::span<const int64_t> lengths)
      : pipeline_(pipeline), scheme_(scheme), times_(pipeline, cost), lengths_(lengths) {}

  // Of the schedule that will run. REQUIRES: rings do not cross; each unit fits its lanes.
  int64_t makespan_ns(const LaneDraft& draft) const;
  // By lane, when it and all lanes that rings tie to it, directly or through others, have ended. REQUIRES: as
  // above; several stages.
  std::vector<int64_t> ends_ns(const LaneDraft& draft) const;
  // Sequences of a unit in ascending order. REQUIRES: as above.
  strategy::PipelinePlan plan(const LaneDraft& draft) const;

 private:
  // On its fullest lane.
  cost::Work work_of(const LaneUnit& unit) const;
  int64_t one_stage_ns(const LaneDraft& draft, std::span<const int> order) const;
  // What the unit, whose index names its ring, has on its lane `place`.
  strategy::MicroBatch micro_batch_of(const LaneUnit& unit, int index, int place) const;

  const strategy::Pipeline& pipeline_;
  const SchemeCost& scheme_;
  schedule::UnitTimes times_;
  std::span<const int64_t> lengths_;
};

}  // namespace sluice::plan
