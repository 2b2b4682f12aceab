#include "plan/lane_draft.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace sluice::plan {
namespace {

// On the unit's fullest lane. REQUIRES: no lane has whole sequences beside what it shares.
cost::Work work_of(const strategy::Unit& unit) {
  cost::Work work;
  for (const strategy::UnitSequence& sequence : unit.sequences)
    work += cost::Work::of_lane(0, sequence.length_tokens, unit.lanes);
  work.tokens = unit.tokens();
  return work;
}

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

// Units follow each other on every lane, forward and backward at once.
int64_t LaneDrafting::one_stage_ns(const LaneDraft& draft, std::span<const int> order) const {
  std::vector<int64_t> end_ns(draft.lanes.size(), 0);
  schedule::UnitTable table(1);
  table.resize(1);
  for (const int index : order) {
    const strategy::Unit& unit = draft.units[static_cast<size_t>(index)];
    const cost::Work work = work_of(unit);
    times_.write(work, table, 0);
    if (unit.lanes > 1) times_.write_ring(work, unit.first_lane, unit.lanes, table, 0);
    const auto first = end_ns.begin() + unit.first_lane;
    const int64_t start_ns = *std::max_element(first, first + unit.lanes);
    std::fill(first, first + unit.lanes, start_ns + table.row(0)[0].all_ns());
  }
  return *std::max_element(end_ns.begin(), end_ns.end());
}

namespace {

// The units of each run of tied lanes, in order, and the run's first lane and the next one's.
struct TiedRun {
  int first_lane = 0;
  int end_lane = 0;
  std::vector<int> units;
};

std::vector<TiedRun> tied_runs(const LaneDraft& draft, std::span<const int> order) {
  std::vector<bool> tied(draft.lanes.size(), false);  // to the lane before
  for (const strategy::Unit& unit : draft.units) {
    std::fill_n(tied.begin() + unit.first_lane + 1, unit.lanes - 1, true);
  }
  std::vector<TiedRun> runs;
  std::vector<size_t> run_of_lane;
  for (int lane = 0; lane < static_cast<int>(tied.size()); ++lane) {
    if (!tied[static_cast<size_t>(lane)]) runs.push_back({.first_lane = lane, .units = {}});
    runs.back().end_lane = lane + 1;
    run_of_lane.push_back(runs.size() - 1);
  }
  for (const int unit : order) {
    const int lane = draft.units[static_cast<size_t>(unit)].first_lane;
    runs[run_of_lane[static_cast<size_t>(lane)]].units.push_back(unit);
  }
  return runs;
}

}  // namespace

int64_t LaneDrafting::makespan_ns(const LaneDraft& draft) const {
  if (scheme_.scheme().pp == 1) return one_stage_ns(draft, injection_order(draft));
  const std::vector<int64_t> ends = ends_ns(draft);
  return *std::max_element(ends.begin(), ends.end());
}

std::vector<int64_t> LaneDrafting::ends_ns(const LaneDraft& draft) const {
  schedule::TiedUnits units(scheme_.scheme().pp);
  schedule::TiedMakespan makespan;
  std::vector<int64_t> ends_ns;
  for (const TiedRun& run : tied_runs(draft, injection_order(draft))) {
    units.clear();
    units.table.resize(static_cast<int>(run.units.size()));
    for (int row = 0; row < static_cast<int>(run.units.size()); ++row) {
      const strategy::Unit& unit = draft.units[static_cast<size_t>(run.units[static_cast<size_t>(row)])];
      const cost::Work work = work_of(unit);
      times_.write(work, units.table, row);
      if (unit.lanes > 1) times_.write_ring(work, unit.first_lane, unit.lanes, units.table, row);
      units.first_lane.push_back(unit.first_lane - run.first_lane);
      units.lanes.push_back(unit.lanes);
    }
    const int lanes = run.end_lane - run.first_lane;
    ends_ns.insert(ends_ns.end(), static_cast<size_t>(lanes),
                   makespan.of(units, lanes, scheme_.credit_tokens()));
  }
  return ends_ns;
}

strategy::PipelinePlan LaneDrafting::plan(LaneDraft draft) const {
  strategy::PipelinePlan plan{.pipeline = pipeline_,
                              .max_len_tokens = scheme_.lane_max_len_tokens(),
                              .units = in_injection_order(std::move(draft.units), draft.lanes)};
  for (strategy::Unit& unit : plan.units) {
    std::ranges::sort(unit.sequences, {}, &strategy::UnitSequence::sequence);
    plan.max_len_tokens = std::max(plan.max_len_tokens, unit.tokens());
  }
  return plan;
}

}  // namespace sluice::plan
