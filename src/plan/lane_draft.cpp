#include "plan/lane_draft.h"

#include <algorithm>
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

schedule::Unit LaneDrafting::unit_of(const LaneUnit& unit) const {
  if (unit.lanes > 1) {
    const std::vector<cost::Work> parts(static_cast<size_t>(unit.lanes), fullest_work(unit, lengths_));
    return times_.of(parts, unit.first_lane);
  }
  cost::Work work;
  for (const int sequence : unit.sequences) {
    const int64_t length = lengths_[static_cast<size_t>(sequence)];
    work += cost::Work::of_lane(length, length, 1);
  }
  return times_.of(std::span(&work, 1), unit.first_lane);
}

// With one stage units follow each other on every lane, forward and backward at once.
int64_t LaneDrafting::makespan_ns(const LaneDraft& draft) const {
  schedule::PipelineLoad load{.stages = scheme_.scheme().pp,
                              .lanes = scheme_.scheme().cp,
                              .credit_tokens = scheme_.credit_tokens(),
                              .units = {}};
  std::vector<int64_t> end_ns(draft.lanes.size(), 0);
  for (const int index : schedule::injection_order(draft.lanes)) {
    load.units.push_back(unit_of(draft.units[static_cast<size_t>(index)]));
    const schedule::Unit& unit = load.units.back();
    const auto first = end_ns.begin() + unit.first_lane;
    const int64_t start_ns = *std::max_element(first, first + unit.lanes);
    std::fill(first, first + unit.lanes,
              start_ns + unit.forward_ns[0] + unit.backward_input_ns[0] + unit.backward_weight_ns[0]);
  }
  if (load.stages == 1) return *std::max_element(end_ns.begin(), end_ns.end());
  return schedule::schedule_pipeline(load).makespan_ns;
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
