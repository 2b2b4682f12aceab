// Plans of DeepSpeed, FSDP and FlexSP, which divide all ranks into groups for each micro-batch. A group
// shares its sequences between its lanes, and a micro-batch runs on all ranks together.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cost/cost_model.h"
#include "cost/exchange.h"
#include "strategy/step_plan.h"

namespace sluice::published {

struct LaneGroup {
  int lanes = 1;
  std::vector<int> sequences;  // indices into the lengths; empty: the group is idle
};

// The exchange of keys and values between lanes of a group, and the costs of its activations.
struct GroupProgram {
  strategy::Scheme scheme;  // one pipeline, on all ranks
  strategy::Exchange exchange = strategy::Exchange::kHeads;
  strategy::MemoryPolicy memory = {};
};

// One pipeline. A micro-batch's groups lie side by side from lane 0 on; a group whose sequences are all
// shorter than two tokens a lane uses fewer of its lanes. If all lanes share parameters, a micro-batch is a
// pass; if fewer do, its groups join passes by strategy::assign_passes. The estimate is that of the schedule
// that would run. Sequences have the order of `lengths` and belong to no document.
strategy::StepPlan lane_groups_plan(const GroupProgram& program,
                                    std::span<const std::vector<LaneGroup>> micro_batches,
                                    std::span<const int64_t> lengths, const cost::CostModel& cost,
                                    int world_size);

// Tokens of a sequence on one lane of a group: two of 2·lanes chunks.
int64_t tokens_on_lane(int64_t length, int lanes);

// Tokens that a lane of a group can hold in a micro-batch, with memory for its exchange.
int64_t capacity_tokens(const GroupProgram& program, int lanes, const cost::CostModel& cost, int world_size);

// Groups of one width: first-fit decreasing makes micro-batches of at most `micro_batch_tokens` a lane (more
// only for a single sequence), dealt to the groups round robin.
struct StaticGroups {
  GroupProgram program;
  int group_lanes = 1;
  int64_t micro_batch_tokens = 0;
  int64_t mean_ns = 0;  // over sample batches
};
strategy::StepPlan static_groups_plan(const StaticGroups& choice, std::span<const int64_t> lengths,
                                      const cost::CostModel& cost, int world_size);

// The static groups with the least mean estimate over the sample batches. Widths are powers of two that
// divide the lanes (kHeads: and a TP rank's heads). Micro-batches are as long as the context, or as memory
// allows, or a half, quarter or eighth of that. Nullopt if no width holds the context.
std::optional<StaticGroups> best_static_groups(const GroupProgram& program, int64_t context_length,
                                               std::span<const std::vector<int64_t>> sample_batches,
                                               const cost::CostModel& cost, int world_size);

// The largest possible width of a group, at most `most_lanes`.
int most_group_lanes(const GroupProgram& program, const cost::CostModel& cost, int most_lanes);

}  // namespace sluice::published
