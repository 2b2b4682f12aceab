// Plans of programs that cut all ranks into groups anew for each micro-batch, each of which shares its
// sequences between its lanes, and whose micro-batches run on all ranks together: DeepSpeed, FSDP, FlexSP.
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
  std::vector<int> sequences;  // indices into the lengths; empty: the group has nothing to do
};

// How lanes of a group see each other's keys and values, and what their activations come to.
struct GroupProgram {
  strategy::Scheme scheme;  // one pipeline, on all ranks
  strategy::Exchange exchange = strategy::Exchange::kHeads;
  strategy::MemoryPolicy memory = {};
};

// One pipeline. A micro-batch's groups lie side by side from lane 0 on; one whose sequences are all shorter
// than two tokens a lane uses fewer of its lanes. Where all lanes share parameters it is a pass; where fewer
// do, its groups join passes as strategy::assign_passes says. The estimate is that of the schedule that would
// run. Sequences are those of `lengths`, in their order, of no document.
strategy::StepPlan lane_groups_plan(const GroupProgram& program,
                                    std::span<const std::vector<LaneGroup>> micro_batches,
                                    std::span<const int64_t> lengths, const cost::CostModel& cost,
                                    int world_size);

// What one lane of a group has of a sequence: two of 2·lanes chunks.
int64_t tokens_on_lane(int64_t length, int lanes);

// How much a lane of a group holds in a micro-batch, where its exchange takes room too.
int64_t capacity_tokens(const GroupProgram& program, int lanes, const cost::CostModel& cost, int world_size);

// One width for all: first-fit decreasing makes micro-batches of at most `micro_batch_tokens` a lane (more
// only for a single sequence), which are dealt to the groups in turns.
struct StaticGroups {
  GroupProgram program;
  int group_lanes = 1;
  int64_t micro_batch_tokens = 0;
  int64_t mean_ns = 0;  // over sample batches
};
strategy::StepPlan static_groups_plan(const StaticGroups& choice, std::span<const int64_t> lengths,
                                      const cost::CostModel& cost, int world_size);

// Of the widths, powers of two that divide the lanes (kHeads: and a TP rank's heads), and micro-batches as
// long as the context, as long as memory allows, and half, a quarter and an eighth of that: those with the
// least mean estimate over the sample batches. Nothing when none holds the context.
std::optional<StaticGroups> best_static_groups(const GroupProgram& program, int64_t context_length,
                                               std::span<const std::vector<int64_t>> sample_batches,
                                               const cost::CostModel& cost, int world_size);

// The widest such group, of at most so many lanes.
int most_group_lanes(const GroupProgram& program, const cost::CostModel& cost, int most_lanes);

}  // namespace sluice::published
