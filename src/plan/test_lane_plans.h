// For tests of planners on lanes: the lanes that a plan puts sequences on, and random batches.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"
#include "plan/scheme_cost.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::plan {

// By lane, the sequences of each of its micro-batches.
using LaneLists = std::vector<std::vector<std::vector<int>>>;

inline LaneLists lists_of(const strategy::StepPlan& plan) {
  LaneLists lists;
  for (const auto& lane : strategy::lane_parts(plan.pipelines.front())) {
    lists.emplace_back();
    for (const strategy::LanePart& lane_part : lane) {
      std::vector<int> sequences;
      for (const strategy::Piece& scheduled : lane_part.pieces) sequences.push_back(scheduled.sequence);
      sequences.erase(std::unique(sequences.begin(), sequences.end()), sequences.end());
      lists.back().push_back(std::move(sequences));
    }
  }
  return lists;
}

// Appends a literal planner's micro-batch, sequences on lanes [first, first + lanes), to each lane's list.
inline void append_to(LaneLists& lists, int first, int lanes, std::vector<int> sequences) {
  std::sort(sequences.begin(), sequences.end());
  for (int lane = first; lane < first + lanes; ++lane) lists[static_cast<size_t>(lane)].push_back(sequences);
}

inline void expect_valid_and_scored(const strategy::StepPlan& plan, const cost::CostModel& cost, int world) {
  ASSERT_NO_THROW(strategy::validate(plan, world));
  const schedule::PipelineLoad load = schedule::pipeline_load(plan.pipelines.front(), cost, world);
  ASSERT_EQ(plan.estimated_ns, schedule::schedule_pipeline(load).makespan_ns);
}

// Lengths of a random batch: mostly short, some that need several lanes.
inline std::vector<int64_t> random_batch(base::Rng& rng, int64_t most, int64_t longest) {
  std::vector<int64_t> lengths;
  for (int64_t i = rng.between(1, most); i > 0; --i) {
    lengths.push_back(rng.between(64, rng.below(4) == 0 ? longest : std::min<int64_t>(longest, 600)));
  }
  return lengths;
}

}  // namespace sluice::plan
