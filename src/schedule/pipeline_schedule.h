// The order of one pipeline's cells and the exact recurrence of their times: 1F1B's shape, weight
// gradients split off, admission by token credits. Planning scores plans with it and graph lowering takes
// its order, so both speak of the same schedule.
//
// A micro-batch (strategy::Micro-batch) of several lanes occupies all of them at once. Policy at each stage
// of a lane that no micro-batch ties to others, whenever it is free: a ready backward (oldest first), else a
// ready forward (admitted), else the oldest deferred weight gradient. A forward is admitted at stage 0 when
// its tokens fit the credit of every lane it uses; otherwise the stage drains. Credit returns when the
// micro-batch's weight gradient is done on every stage. While the next micro-batch waits for credit, a later
// stage prefers the weight gradient of the oldest micro-batch in flight to a forward. Where one stage alone
// has backwards they are never split. On the first of several that have them (stage 0, unless its layers are
// frozen) the last micro-batch's backward is fused; a micro-batch under a memory policy is fused on every
// stage. Before a fused backward a stage does the older weight gradients, so that it finishes micro-batches
// in order; the last stage does them before the forward, from which it turns at once. The gradient leaves
// when both are done. At one instant transfers start first, then stages decide from the first to the last;
// where there are several lanes a transfer waits for those of older micro-batches on its lanes.
//
// Lanes that micro-batches tie to each other, directly or through third ones, keep in step. Their
// micro-batches form rounds, each in the first behind the rounds of those before it on its lanes. A stage
// runs the cells of every such lane in the order in which it would run them on one lane whose micro-batches
// were the rounds, each with its longest cells and most tokens; what waits for what remains the lanes' own.
// Were each lane to choose for itself, a micro-batch would wait for the one that is busy with something else,
// and others for those that wait.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cost/cost_model.h"
#include "cost/exchange.h"
#include "cost/fsdp_cost.h"
#include "strategy/pass.h"

namespace sluice::schedule {

// What a micro-batch takes; where lanes share parameters a pass (strategy/pass.h), which is one micro-batch
// to the schedule.
struct TimedMicroBatch {
  int first_lane = 0;
  int lanes = 1;
  int64_t tokens = 0;  // on its fullest lane
  // What it takes of its lanes' credit where that is not its tokens: under a policy of its own.
  std::optional<int64_t> credit_tokens;
  bool fused = false;  // under a memory policy
  // Its gradients go down to this stage; those before it, and with the number of stages all, have a forward
  // alone (cost::CostModel::first_backward_stage).
  int first_backward_stage = 0;
  int64_t credit() const { return credit_tokens.value_or(tokens); }
  // By stage.
  std::vector<int64_t> forward_ns;
  std::vector<int64_t> backward_input_ns;
  std::vector<int64_t> backward_weight_ns;
  std::vector<int64_t> transfer_ns;  // boundary s -> s+1, either direction; stages − 1 of them
  // What its exchange exposes of forward_ns and backward_input_ns, by stage; empty on one lane.
  std::vector<int64_t> forward_cp_exchange_ns;
  std::vector<int64_t> backward_cp_exchange_ns;
  // What gathers and sums of gradients expose of them and of backward_weight_ns, by stage; empty where lanes
  // share nothing.
  std::vector<int64_t> forward_fsdp_ns = {};
  std::vector<int64_t> backward_fsdp_ns = {};
  std::vector<int64_t> weight_fsdp_ns = {};
};

struct PipelineLoad {
  int stages = 1;
  int lanes = 1;
  int64_t credit_tokens = 0;                   // a lane's
  std::vector<TimedMicroBatch> micro_batches;  // in the order of injection
};

struct Cell {
  cost::CellKind kind = cost::CellKind::kForward;
  int micro_batch = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

struct PipelineSchedule {
  // cells[stage][lane]: in execution order.
  std::vector<std::vector<std::vector<Cell>>> cells;
  int64_t makespan_ns = 0;
  int64_t peak_tokens = 0;  // most credit in use on any lane
};

// REQUIRES: every micro-batch's credit <= credit_tokens and its lanes lie within [0, lanes).
// Transfers rendezvous, exactly as graph/clock has them: a stage's lane has one stream for activations and
// one for gradients; each carries one transfer at a time, sent or received, and a transfer occupies its
// stream at both ends. A transfer starts as soon as both are free; among those that can start, the one that
// has been ready longest, then the older micro-batch, goes first; with several lanes it is ready only when
// those before it on its lanes have arrived. Compute does not wait for its sends. Deterministic; O(cells ·
// log cells).
PipelineSchedule schedule_pipeline(const PipelineLoad& load);

class MicroBatchTable;  // schedule/micro_batch_table.h

// Times of a pipeline's micro-batches at its pace, under the cost model's memory policy, with everything that
// they share looked up once.
class MicroBatchTimes {
 public:
  MicroBatchTimes(const strategy::Pipeline& pipeline, const cost::CostModel& cost);
  // A stage of a micro-batch takes as long as its slowest lane, and on several lanes what their exchange
  // exposes (cost::Exchanges) comes on top, of what the lanes share.
  TimedMicroBatch of(const strategy::PipelineMicroBatch& micro_batch) const;
  // The same on lanes first_lane, first_lane + 1, … with this work each, all of it shared, in a ring.
  TimedMicroBatch of(std::span<const cost::Work> lanes, int first_lane) const;
  // The micro-batches of a pass together: a stage takes as long as the slowest of them beside what is
  // gathered and summed (cost::pass_ns). Where the schedule joins a backward that could be split, it takes
  // both its cells.
  TimedMicroBatch of(const strategy::PipelinePlan& plan, const strategy::Pass& pass) const;
  // What such a cell goes through (cost::FsdpCost::operations). REQUIRES: lanes share parameters;
  // kBackwardInput and kBackwardWeight only where backwards are split.
  std::vector<cost::FsdpOperations> fsdp_operations(const strategy::PipelinePlan& plan,
                                                    const strategy::Pass& pass, cost::CellKind kind,
                                                    int stage) const;
  // The same into a row of a table, with another exchange than the micro-batch's; `work` is that of a
  // micro-batch on lane 0 alone. REQUIRES: the table has the scheme's stages.
  void write(const strategy::PipelineMicroBatch& micro_batch, const cost::ExchangeChoice& exchange,
             MicroBatchTable& table, int row) const;
  void write(const cost::Work& work, MicroBatchTable& table, int row) const;
  // cost::Exchanges' choice for the micro-batch on its lanes; a ring where lanes have whole sequences of
  // their own.
  cost::ExchangeChoice cheapest_exchange(const strategy::PipelineMicroBatch& micro_batch,
                                         int64_t max_tokens) const;

 private:
  // `works`: those of the lanes, of which those that no stage waits for may be left out.
  TimedMicroBatch of(std::span<const cost::Work> works, const cost::Work& shared, base::Interval lanes,
                     const cost::ExchangeChoice& exchange) const;
  void add_exchange(TimedMicroBatch& micro_batch, const cost::Work& shared,
                    const cost::ExchangeChoice& exchange) const;
  // Of a pass, the micro-batch that takes longest in such a cell, what it computes and what its exchange
  // exposes.
  struct Slowest {
    const strategy::PipelineMicroBatch& unit;
    int64_t compute_ns = 0;
    int64_t ring_ns = 0;
  };
  Slowest slowest_of(const strategy::PipelinePlan& plan, const strategy::Pass& pass,
                     const std::vector<TimedMicroBatch>& micro_batches, cost::CellKind kind,
                     size_t stage) const;
  std::vector<cost::FsdpOperations> operations_of(const Slowest& slowest, cost::CellKind kind,
                                                  size_t stage) const;
  cost::LanePlace place(size_t stage, int first_lane, int lanes) const;

  strategy::Scheme scheme_;
  cost::CostModel cost_;  // at the pipeline's pace
  bool fused_;
  int first_backward_stage_;
  std::vector<cost::Quadratic> forward_;  // by stage
  std::vector<cost::Quadratic> backward_input_;
  std::vector<cost::Quadratic> backward_weight_;
  std::vector<size_t> like_;            // by stage: the first one with the same times
  std::vector<int> level_of_boundary_;  // of the topology
  // Of several lanes.
  std::optional<cost::Exchanges> exchanges_;
  std::vector<strategy::StageLanes> lanes_;  // by stage
  std::vector<size_t> exchange_like_;        // by stage: the first one that exposes the same
  std::vector<cost::FsdpCost> share_;        // by stage; none with a share of 1
};

// What a micro-batch or a pass runs under: its own policy, or when that keeps all the cost model's.
const strategy::MemoryPolicy& policy_of(const strategy::PipelineMicroBatch& micro_batch,
                                        const cost::CostModel& cost);
const strategy::MemoryPolicy& policy_of(const strategy::Pass& pass, const cost::CostModel& cost);

// The passes of one pipeline of a plan, index by index, each under its policy: its micro-batches, where lanes
// share nothing.
std::vector<TimedMicroBatch> timed_micro_batches(const strategy::PipelinePlan& plan,
                                                 const cost::CostModel& cost);

// The policy whose tokens a pipeline's credit counts: of its micro-batches' that which keeps most.
strategy::MemoryPolicy credit_policy(const strategy::PipelinePlan& plan, const cost::CostModel& cost);

// The same with the scheme's credit under credit_policy, of which the micro-batches of other policies take
// cost::MemoryCost::credit_of.
PipelineLoad pipeline_load(const strategy::PipelinePlan& plan, const cost::CostModel& cost, int world_size);

}  // namespace sluice::schedule
