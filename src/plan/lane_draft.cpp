#include "plan/lane_draft.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace sluice::plan {
namespace {

// The fullest lane's work of the sequences that several lanes share.
cost::Work fullest_work(const LaneUnit& unit, std::span<const int64_t> lengths) {
  std::vector<int64_t> tokens(static_cast<size_t>(unit.lanes), 0);
  cost::Work work;
  for (const int sequence : unit.sequences) {
    const int64_t length = lengths[static_cast<size_t>(sequence)];
    work += cost::Work::of_lane(0, length, unit.lanes);
    for (int lane = 0; lane < unit.lanes; ++lane) {
      tokens[static_cast<size_t>(lane)] +=
          strategy::causal_chunk(length, unit.lanes, lane).size() +
          strategy::causal_chunk(length, unit.lanes, 2 * unit.lanes - 1 - lane).size();
    }
  }
  work.tokens = *std::max_element(tokens.begin(), tokens.end());
  return work;
}

}  // namespace

int LaneDraft::append(LaneUnit unit) {
  const int index = static_cast<int>(units.size());
  for (int lane = unit.first_lane; lane < unit.first_lane + unit.lanes; ++lane) {
    lanes[static_cast<size_t>(lane)].push_back(index);
  }
  units.push_back(std::move(unit));
  return index;
}

cost::Work LaneDrafting::work_of(const LaneUnit& unit) const {
  if (unit.lanes > 1) return fullest_work(unit, lengths_);
  cost::Work work;
  for (const int sequence : unit.sequences) {
    const int64_t length = lengths_[static_cast<size_t>(sequence)];
    work += cost::Work::of_lane(length, length, 1);
  }
  return work;
}

// Units follow each other on every lane, forward and backward at once.
int64_t LaneDrafting::one_stage_ns(const LaneDraft& draft, std::span<const int> order) const {
  std::vector<int64_t> end_ns(draft.lanes.size(), 0);
  schedule::UnitTable table(1);
  table.resize(1);
  for (const int index : order) {
    const LaneUnit& unit = draft.units[static_cast<size_t>(index)];
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
  for (const LaneUnit& unit : draft.units) {
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
  if (scheme_.scheme().pp == 1) return one_stage_ns(draft, schedule::injection_order(draft.lanes));
  const std::vector<int64_t> ends = ends_ns(draft);
  return *std::max_element(ends.begin(), ends.end());
}

std::vector<int64_t> LaneDrafting::ends_ns(const LaneDraft& draft) const {
  schedule::TiedUnits units(scheme_.scheme().pp);
  schedule::TiedMakespan makespan;
  std::vector<int64_t> ends_ns;
  for (const TiedRun& run : tied_runs(draft, schedule::injection_order(draft.lanes))) {
    units.clear();
    units.table.resize(static_cast<int>(run.units.size()));
    for (int row = 0; row < static_cast<int>(run.units.size()); ++row) {
      const LaneUnit& unit = draft.units[static_cast<size_t>(run.units[static_cast<size_t>(row)])];
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

strategy::MicroBatch LaneDrafting::micro_batch_of(const LaneUnit& unit, int index, int place) const {
  strategy::MicroBatch micro_batch{.ring = {}, .pieces = {}, .memory = unit.memory};
  std::vector<int> sequences = unit.sequences;
  std::sort(sequences.begin(), sequences.end());
  micro_batch.pieces.reserve((unit.lanes == 1 ? 1 : 2) * sequences.size());
  if (unit.lanes > 1) micro_batch.ring = index;
  for (const int sequence : sequences) {
    const int64_t length = lengths_[static_cast<size_t>(sequence)];
    if (unit.lanes == 1) {
      micro_batch.pieces.push_back({sequence, 0, length});
      continue;
    }
    for (const int chunk : {place, 2 * unit.lanes - 1 - place}) {
      const base::Interval tokens = strategy::causal_chunk(length, unit.lanes, chunk);
      if (!tokens.empty()) micro_batch.pieces.push_back({sequence, tokens.begin, tokens.end});
    }
  }
  return micro_batch;
}

strategy::PipelinePlan LaneDrafting::plan(const LaneDraft& draft) const {
  strategy::PipelinePlan plan{.pipeline = pipeline_,
                              .max_len_tokens = scheme_.lane_max_len_tokens(),
                              .lanes = std::vector<std::vector<strategy::MicroBatch>>(draft.lanes.size())};
  for (size_t lane = 0; lane < draft.lanes.size(); ++lane) {
    plan.lanes[lane].reserve(draft.lanes[lane].size());
    for (const int index : draft.lanes[lane]) {
      const LaneUnit& unit = draft.units[static_cast<size_t>(index)];
      plan.lanes[lane].push_back(micro_batch_of(unit, index, static_cast<int>(lane) - unit.first_lane));
      plan.max_len_tokens = std::max(plan.max_len_tokens, plan.lanes[lane].back().tokens());
    }
  }
  return plan;
}

}  // namespace sluice::plan
