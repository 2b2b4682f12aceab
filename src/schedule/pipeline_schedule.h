// Orders the cells of one pipeline and computes their times exactly, by a recurrence. The schedule is 1F1B
// with weight gradients split off and admission by token credit. Planning scores plans with it and graph
// lowering takes its order, so both have the same schedule.
//
// A micro-batch (strategy::PipelineMicroBatch) of several lanes occupies all of them at once. On a lane that
// no micro-batch ties to others, each free stage runs a ready backward (oldest first), else a ready and
// admitted forward, else the oldest deferred weight gradient. Stage 0 admits a forward if its tokens fit the
// credit of every lane it uses; otherwise the stage drains. Credit returns when the micro-batch's weight
// gradients are done on every stage. While the next micro-batch waits for credit, later stages prefer the
// weight gradient of the oldest micro-batch in flight to a forward. Backwards are never split if one stage
// alone has them. The first stage with backwards (stage 0, unless its layers are frozen) fuses the last
// micro-batch's backward; a micro-batch under a memory policy is fused on every stage. Before a fused
// backward a stage runs older weight gradients, so micro-batches finish in order there. The last stage runs
// them before the forward already, since its backward follows at once. A fused backward sends its gradient
// when both halves are done. At one instant transfers start first; then stages decide from the first to the
// last. With several lanes a transfer waits for those of older micro-batches on its lanes.
//
// Lanes that micro-batches tie to each other, directly or through other lanes, run in lockstep rounds. Each
// of their micro-batches belongs to the first round behind all earlier micro-batches on its lanes. For each
// stage the rounds are scheduled like micro-batches of one lane, each with its longest cells and most tokens.
// Every tied lane runs its cells in that order; dependencies remain those of its own cells.
// If each lane chose for itself, a micro-batch would wait for a busy lane while its other lanes idle.
// Micro-batches behind it would wait in turn.
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

// The times of a micro-batch. If lanes share parameters, a pass (strategy/pass.h) counts as one micro-batch
// of the schedule.
struct TimedMicroBatch {
  int first_lane = 0;
  int lanes = 1;
  int64_t tokens = 0;  // tokens on its fullest lane
  // Taken of its lanes' credit, if that differs from `tokens`, as under a memory policy of its own.
  std::optional<int64_t> credit_tokens;
  bool fused = false;  // runs under a memory policy
  // The lowest stage with a backward; stages before it have forwards alone. If it equals the number of
  // stages, no stage has a backward (cost::CostModel::first_backward_stage).
  int first_backward_stage = 0;
  int64_t credit() const { return credit_tokens.value_or(tokens); }
  // Durations by stage.
  std::vector<int64_t> forward_ns;
  std::vector<int64_t> backward_input_ns;
  std::vector<int64_t> backward_weight_ns;
  std::vector<int64_t> transfer_ns;  // boundary s -> s+1 in either direction; stages − 1 entries
  // Parts of forward_ns and backward_input_ns that are exposed CP exchange, by stage; empty on one lane.
  std::vector<int64_t> forward_cp_exchange_ns;
  std::vector<int64_t> backward_cp_exchange_ns;
  // Parts of all three that are exposed all-gathers and reduce-scatters, by stage; empty if lanes share no
  // parameters.
  std::vector<int64_t> forward_fsdp_ns = {};
  std::vector<int64_t> backward_fsdp_ns = {};
  std::vector<int64_t> weight_fsdp_ns = {};
};

struct PipelineLoad {
  int stages = 1;
  int lanes = 1;
  int64_t credit_tokens = 0;                   // each lane's
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

// REQUIRES: every micro-batch's credit <= credit_tokens, and its lanes lie within [0, lanes). Transfers
// rendezvous, exactly as in graph/clock: a stage's lane has one stream for activations and one for gradients.
// A stream carries one transfer at a time, sent or received, and a transfer occupies the streams at both
// ends. It starts as soon as both are free. Among transfers that can start, the one that has been ready
// longest goes first, then the older micro-batch's. With several lanes a transfer is ready only when those
// before it on its lanes have arrived. Compute does not wait for its sends. Deterministic; O(cells · log
// cells).
PipelineSchedule schedule_pipeline(const PipelineLoad& load);

class MicroBatchTable;  // schedule/micro_batch_table.h

// Times of a pipeline's micro-batches at the pipeline's speed, under the cost model's memory policy. Common
// figures are looked up once.
class MicroBatchTimes {
 public:
  MicroBatchTimes(const strategy::Pipeline& pipeline, const cost::CostModel& cost);
  // A stage of a micro-batch takes as long as its slowest lane. On several lanes the exposed time of
  // exchanging their shared sequences (cost::Exchanges) is added.
  TimedMicroBatch of(const strategy::PipelineMicroBatch& micro_batch) const;
  // The same on lanes first_lane, first_lane + 1, … with the given work each, all of it shared in a ring.
  TimedMicroBatch of(std::span<const cost::Work> lanes, int first_lane) const;
  // A pass: each stage takes as long as the slowest of its micro-batches, beside all-gathers and
  // reduce-scatters (cost::pass_ns). If the schedule fuses a backward that could be split, its time is the
  // sum of both cells.
  TimedMicroBatch of(const strategy::PipelinePlan& plan, const strategy::Pass& pass) const;
  // The FSDP operations of such a cell (cost::FsdpCost::operations). REQUIRES: lanes share parameters, and
  // backwards are split if `kind` is kBackwardInput or kBackwardWeight.
  std::vector<cost::FsdpOperations> fsdp_operations(const strategy::PipelinePlan& plan,
                                                    const strategy::Pass& pass, cost::CellKind kind,
                                                    int stage) const;
  // Writes times into a row of a table, with `exchange` in place of the micro-batch's; `work` alone stands
  // for a micro-batch on lane 0. REQUIRES: the table has the scheme's stages.
  void write(const strategy::PipelineMicroBatch& micro_batch, const cost::ExchangeChoice& exchange,
             MicroBatchTable& table, int row) const;
  void write(const cost::Work& work, MicroBatchTable& table, int row) const;
  // The exchange that cost::Exchanges chooses for the micro-batch on its lanes; a ring if lanes have whole
  // sequences of their own.
  cost::ExchangeChoice cheapest_exchange(const strategy::PipelineMicroBatch& micro_batch,
                                         int64_t max_tokens) const;

 private:
  // `works` are the lanes' works; lanes that no stage waits for may be left out.
  TimedMicroBatch of(std::span<const cost::Work> works, const cost::Work& shared, base::Interval lanes,
                     const cost::ExchangeChoice& exchange) const;
  void add_exchange(TimedMicroBatch& micro_batch, const cost::Work& shared,
                    const cost::ExchangeChoice& exchange) const;
  // The micro-batch of a pass whose cell of this kind and stage is the longest, with its compute time and its
  // exposed exchange time.
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
  cost::CostModel cost_;  // at the pipeline's speed
  bool fused_;
  int first_backward_stage_;
  std::vector<cost::Quadratic> forward_;  // by stage
  std::vector<cost::Quadratic> backward_input_;
  std::vector<cost::Quadratic> backward_weight_;
  std::vector<size_t> like_;            // by stage: the first stage with the same times
  std::vector<int> level_of_boundary_;  // in the topology
  // For several lanes only.
  std::optional<cost::Exchanges> exchanges_;
  std::vector<strategy::StageLanes> lanes_;  // by stage
  std::vector<size_t> exchange_like_;        // by stage: the first stage with the same exposed exchange
  std::vector<cost::FsdpCost> share_;        // by stage; empty with an FSDP degree of 1
};

// The memory policy of a micro-batch or a pass: its own, or the cost model's if its own keeps all.
const strategy::MemoryPolicy& policy_of(const strategy::PipelineMicroBatch& micro_batch,
                                        const cost::CostModel& cost);
const strategy::MemoryPolicy& policy_of(const strategy::Pass& pass, const cost::CostModel& cost);

// The passes of one pipeline of a plan, index by index, each under its memory policy. With an FSDP degree of
// 1 they are its micro-batches.
std::vector<TimedMicroBatch> timed_micro_batches(const strategy::PipelinePlan& plan,
                                                 const cost::CostModel& cost);

// The policy in whose tokens credit is counted: among the micro-batches' policies, the one that keeps most.
strategy::MemoryPolicy credit_policy(const strategy::PipelinePlan& plan, const cost::CostModel& cost);

// The passes as a load, with the scheme's credit under credit_policy. Micro-batches of other policies take
// cost::MemoryCost::credit_of of it.
PipelineLoad pipeline_load(const strategy::PipelinePlan& plan, const cost::CostModel& cost, int world_size);

}  // namespace sluice::schedule
