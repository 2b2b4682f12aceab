#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "cost/memory_cost.h"
#include "schedule/micro_batch_table.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::schedule {
namespace {

using cost::CellKind;
using cost::CostModel;
using strategy::PipelinePlan;

// A micro-batch's work on its lanes, and the part that its fullest lane shares with the others. Causal
// cutting gives every lane the same share of a sequence's attention, so that only whole sequences, which are
// their lane's alone, make lanes differ by more than tokens.
struct MicroBatchWork {
  MicroBatchWork(const strategy::PipelineMicroBatch& micro_batch, int64_t window) {
    for (const strategy::MicroBatchSequence& sequence : micro_batch.sequences)
      shared += cost::Work::of_lane(0, sequence, micro_batch.lanes, window);
    if (micro_batch.own.empty()) {
      shared.tokens = micro_batch.tokens();
      lanes.push_back(shared);
      return;
    }
    for (int lane = micro_batch.first_lane; lane < micro_batch.end_lane(); ++lane) {
      cost::Work work{
          .tokens = micro_batch.tokens_on(lane), .windowed = shared.windowed, .squares = shared.squares};
      int64_t shared_tokens = work.tokens;
      for (const strategy::MicroBatchSequence& whole :
           micro_batch.own[static_cast<size_t>(lane - micro_batch.first_lane)]) {
        work += cost::Work::of_lane(0, whole, 1, window);
        shared_tokens -= whole.length_tokens;
      }
      shared.tokens = std::max(shared.tokens, shared_tokens);
      lanes.push_back(work);
    }
  }
  cost::Work fullest() const { return *std::ranges::max_element(lanes, {}, &cost::Work::tokens); }

  std::vector<cost::Work> lanes;  // the fullest lane alone if lanes differ by tokens alone
  cost::Work shared;
};

}  // namespace

MicroBatchTimes::MicroBatchTimes(const strategy::Pipeline& pipeline, const CostModel& priced)
    : scheme_(pipeline.scheme),
      cost_(priced.on(pipeline)),
      fused_(scheme_.pp > 1 && !cost_.splits_backward(scheme_)),
      first_backward_stage_(cost_.first_backward_stage(scheme_)) {
  const CostModel& cost = cost_;
  const strategy::Topology& topology = cost.options().topology;
  if (scheme_.cp > 1) exchanges_.emplace(scheme_, cost);
  for (int stage = 0; stage < scheme_.pp; ++stage) {
    const base::Interval part = cost.stage_run(scheme_, stage);
    forward_.push_back(cost.cell_times(scheme_, CellKind::kForward, part));
    backward_input_.push_back(cost.cell_times(scheme_, CellKind::kBackwardInput, part));
    backward_weight_.push_back(cost.cell_times(scheme_, CellKind::kBackwardWeight, part));
    if (stage > 0) level_of_boundary_.push_back(strategy::boundary_level(pipeline, stage - 1, topology));
    size_t like = 0;
    while (forward_[like] != forward_.back() || backward_input_[like] != backward_input_.back() ||
           backward_weight_[like] != backward_weight_.back()) {
      ++like;
    }
    like_.push_back(like);
    if (scheme_.fsdp > 1) share_.emplace_back(cost, scheme_, strategy::fsdp_runs(pipeline, stage, topology));
    if (scheme_.cp == 1) continue;
    lanes_.push_back(strategy::stage_lanes(pipeline, stage, topology));
    size_t exchange_like = 0;
    while (!exchanges_->alike(static_cast<int>(exchange_like), stage) ||
           lanes_[exchange_like] != lanes_.back()) {
      ++exchange_like;
    }
    exchange_like_.push_back(exchange_like);
  }
}

void MicroBatchTimes::write(const cost::Work& work, MicroBatchTable& table, int row) const {
  const std::span<MicroBatchTable::Cells> cells = table.row(row);
  table.head(row).tokens = work.tokens;
  table.head(row).fused = fused_;
  table.head(row).first_backward_stage = first_backward_stage_;
  for (size_t s = 0; s < cells.size(); ++s) {
    cells[s] = like_[s] < s
                   ? cells[like_[s]]
                   : MicroBatchTable::Cells{forward_[s].of_work(work), backward_input_[s].of_work(work),
                                            backward_weight_[s].of_work(work), 0};
  }
  for (size_t boundary = 0; boundary < level_of_boundary_.size(); ++boundary) {
    const int level = level_of_boundary_[boundary];
    const bool like = boundary > 0 && level == level_of_boundary_[boundary - 1];
    cells[boundary].transfer_ns =
        like ? cells[boundary - 1].transfer_ns : cost_.transfer_ns(scheme_, work.tokens, level);
  }
}

TimedMicroBatch MicroBatchTimes::of(std::span<const cost::Work> lanes, int first_lane) const {
  return of(lanes, *std::ranges::max_element(lanes, {}, &cost::Work::tokens),
            {first_lane, first_lane + std::ssize(lanes)}, {});
}

TimedMicroBatch MicroBatchTimes::of(const strategy::PipelineMicroBatch& micro_batch) const {
  const MicroBatchWork work(micro_batch, cost_.window());
  return of(work.lanes, work.shared, {micro_batch.first_lane, micro_batch.end_lane()},
            {micro_batch.exchange, micro_batch.nested_lanes});
}

TimedMicroBatch MicroBatchTimes::of(std::span<const cost::Work> works, const cost::Work& shared,
                                    base::Interval lanes, const cost::ExchangeChoice& exchange) const {
  const auto stages = static_cast<size_t>(scheme_.pp);
  TimedMicroBatch micro_batch{.first_lane = static_cast<int>(lanes.begin),
                              .lanes = static_cast<int>(lanes.size()),
                              .fused = fused_,
                              .first_backward_stage = first_backward_stage_,
                              .forward_ns = std::vector<int64_t>(stages),
                              .backward_input_ns = std::vector<int64_t>(stages),
                              .backward_weight_ns = std::vector<int64_t>(stages)};
  const auto raise = [](int64_t& to, int64_t value) { to = std::max(to, value); };
  for (const cost::Work& work : works) {
    raise(micro_batch.tokens, work.tokens);
    for (size_t s = 0; s < stages; ++s) {
      raise(micro_batch.forward_ns[s], forward_[s].of_work(work));
      raise(micro_batch.backward_input_ns[s], backward_input_[s].of_work(work));
      raise(micro_batch.backward_weight_ns[s], backward_weight_[s].of_work(work));
    }
  }
  if (micro_batch.lanes > 1) add_exchange(micro_batch, shared, exchange);
  for (const int level : level_of_boundary_)
    micro_batch.transfer_ns.push_back(cost_.transfer_ns(scheme_, micro_batch.tokens, level));
  return micro_batch;
}

namespace {

int64_t cell_ns(const TimedMicroBatch& micro_batch, CellKind kind, size_t stage) {
  switch (kind) {
    case CellKind::kForward: return micro_batch.forward_ns[stage];
    case CellKind::kBackwardInput: return micro_batch.backward_input_ns[stage];
    case CellKind::kBackwardWeight: return micro_batch.backward_weight_ns[stage];
    case CellKind::kBackward:
      return micro_batch.backward_input_ns[stage] + micro_batch.backward_weight_ns[stage];
  }
  SLUICE_ASSERT(false, "unknown cell kind");
}

int64_t ring_ns(const TimedMicroBatch& micro_batch, CellKind kind, size_t stage) {
  if (micro_batch.forward_cp_exchange_ns.empty() || kind == CellKind::kBackwardWeight) return 0;
  return kind == CellKind::kForward ? micro_batch.forward_cp_exchange_ns[stage]
                                    : micro_batch.backward_cp_exchange_ns[stage];
}

}  // namespace

MicroBatchTimes::Slowest MicroBatchTimes::slowest_of(const PipelinePlan& plan, const strategy::Pass& pass,
                                                     const std::vector<TimedMicroBatch>& micro_batches,
                                                     CellKind kind, size_t stage) const {
  const auto slowest = std::ranges::max_element(micro_batches, {}, [&](const TimedMicroBatch& micro_batch) {
    return cell_ns(micro_batch, kind, stage);
  });
  const int index = pass.micro_batches[static_cast<size_t>(slowest - micro_batches.begin())];
  return {plan.micro_batches[static_cast<size_t>(index)], cell_ns(*slowest, kind, stage),
          ring_ns(*slowest, kind, stage)};
}

std::vector<cost::FsdpOperations> MicroBatchTimes::operations_of(const Slowest& slowest, CellKind kind,
                                                                 size_t stage) const {
  const MicroBatchWork work(slowest.unit, cost_.window());
  return share_[stage].operations(kind, cost_.stage_run(scheme_, static_cast<int>(stage)), work.fullest(),
                                  slowest.compute_ns);
}

std::vector<cost::FsdpOperations> MicroBatchTimes::fsdp_operations(const PipelinePlan& plan,
                                                                   const strategy::Pass& pass, CellKind kind,
                                                                   int stage) const {
  std::vector<TimedMicroBatch> micro_batches;
  for (const int index : pass.micro_batches)
    micro_batches.push_back(of(plan.micro_batches[static_cast<size_t>(index)]));
  const auto at = static_cast<size_t>(stage);
  return operations_of(slowest_of(plan, pass, micro_batches, kind, at), kind, at);
}

// With an FSDP degree of 1 a pass is its only micro-batch.
TimedMicroBatch MicroBatchTimes::of(const PipelinePlan& plan, const strategy::Pass& pass) const {
  const auto micro_batch_at = [&](int index) -> const strategy::PipelineMicroBatch& {
    return plan.micro_batches[static_cast<size_t>(index)];
  };
  if (scheme_.fsdp == 1) return of(micro_batch_at(pass.micro_batches.front()));
  std::vector<TimedMicroBatch> micro_batches;
  for (const int index : pass.micro_batches) micro_batches.push_back(of(micro_batch_at(index)));
  TimedMicroBatch timed{.first_lane = pass.first_lane,
                        .lanes = pass.lanes,
                        .fused = fused_,
                        .first_backward_stage = first_backward_stage_};
  int64_t credit = 0;
  for (const TimedMicroBatch& micro_batch : micro_batches) {
    timed.tokens = std::max(timed.tokens, micro_batch.tokens);
    credit = std::max(credit, micro_batch.credit());
  }
  if (credit > timed.tokens) timed.credit_tokens = credit;
  // Appends the time of the slowest micro-batch's cell, with all-gathers and reduce-scatters.
  const auto add = [&](CellKind kind, size_t stage, std::vector<int64_t>& to_ns,
                       std::vector<int64_t>& share_ns, std::vector<int64_t>* exchange_ns) {
    const Slowest slowest = slowest_of(plan, pass, micro_batches, kind, stage);
    to_ns.push_back(cost::pass_ns(operations_of(slowest, kind, stage)));
    share_ns.push_back(to_ns.back() - slowest.compute_ns);
    if (exchange_ns != nullptr) exchange_ns->push_back(slowest.ring_ns);
  };
  const bool splits = cost_.splits_backward(scheme_);
  for (size_t s = 0; s < static_cast<size_t>(scheme_.pp); ++s) {
    add(CellKind::kForward, s, timed.forward_ns, timed.forward_fsdp_ns, &timed.forward_cp_exchange_ns);
    add(splits ? CellKind::kBackwardInput : CellKind::kBackward, s, timed.backward_input_ns,
        timed.backward_fsdp_ns, &timed.backward_cp_exchange_ns);
    if (splits) {
      add(CellKind::kBackwardWeight, s, timed.backward_weight_ns, timed.weight_fsdp_ns, nullptr);
    } else {
      timed.backward_weight_ns.push_back(0);
    }
  }
  for (const int level : level_of_boundary_)
    timed.transfer_ns.push_back(cost_.transfer_ns(scheme_, timed.tokens, level));
  return timed;
}

void MicroBatchTimes::add_exchange(TimedMicroBatch& micro_batch, const cost::Work& shared,
                                   const cost::ExchangeChoice& exchange) const {
  if (exchange != cost::ExchangeChoice{})
    micro_batch.credit_tokens = exchanges_->credit_tokens(exchange, micro_batch.lanes, micro_batch.tokens);
  for (size_t s = 0; s < lanes_.size(); ++s) {
    const auto [forward_ns, backward_ns] = exchanges_->exposed(
        static_cast<int>(s), shared, place(s, micro_batch.first_lane, micro_batch.lanes), exchange);
    micro_batch.forward_cp_exchange_ns.push_back(forward_ns);
    micro_batch.backward_cp_exchange_ns.push_back(backward_ns);
    micro_batch.forward_ns[s] += forward_ns;
    micro_batch.backward_input_ns[s] += backward_ns;
  }
}

cost::LanePlace MicroBatchTimes::place(size_t stage, int first_lane, int lanes) const {
  const strategy::StageLanes& of_stage = lanes_[stage];
  return cost::LanePlace::of(
      std::span(of_stage.node).subspan(static_cast<size_t>(first_lane), static_cast<size_t>(lanes)),
      of_stage.level_of(first_lane, lanes));
}

void MicroBatchTimes::write(const strategy::PipelineMicroBatch& micro_batch,
                            const cost::ExchangeChoice& exchange, MicroBatchTable& table, int row) const {
  const MicroBatchWork work(micro_batch, cost_.window());
  const cost::Work fullest = work.fullest();
  write(fullest, table, row);
  MicroBatchTable::Head& head = table.head(row);
  head.first_lane = micro_batch.first_lane;
  head.lanes = micro_batch.lanes;
  if (exchange != cost::ExchangeChoice{})
    head.tokens = exchanges_->credit_tokens(exchange, micro_batch.lanes, fullest.tokens);
  const std::span<MicroBatchTable::Cells> cells = table.row(row);
  const auto raise = [](int64_t& to, int64_t value) { to = std::max(to, value); };
  for (size_t s = 0; s < cells.size() && !micro_batch.own.empty(); ++s) {
    for (const cost::Work& lane : work.lanes) {
      raise(cells[s].forward_ns, forward_[s].of_work(lane));
      raise(cells[s].backward_input_ns, backward_input_[s].of_work(lane));
      raise(cells[s].backward_weight_ns, backward_weight_[s].of_work(lane));
    }
  }
  for (size_t s = 0; s < cells.size() && micro_batch.lanes > 1; ++s) {
    if (exchange_like_[s] < s) continue;
    const auto [forward_ns, backward_ns] = exchanges_->exposed(
        static_cast<int>(s), work.shared, place(s, micro_batch.first_lane, micro_batch.lanes), exchange);
    for (size_t like = s; like < cells.size(); ++like) {
      if (exchange_like_[like] != s) continue;
      cells[like].forward_ns += forward_ns;
      cells[like].backward_input_ns += backward_ns;
    }
  }
}

cost::ExchangeChoice MicroBatchTimes::cheapest_exchange(const strategy::PipelineMicroBatch& micro_batch,
                                                        int64_t max_tokens) const {
  if (micro_batch.lanes == 1) return {};
  std::vector<cost::Exchanges::StagePlace> stages;
  for (size_t s = 0; s < exchange_like_.size(); ++s) {
    if (exchange_like_[s] != s) continue;
    stages.push_back({static_cast<int>(s), place(s, micro_batch.first_lane, micro_batch.lanes)});
  }
  const MicroBatchWork work(micro_batch, cost_.window());
  return exchanges_->cheapest(work.shared, work.fullest().tokens, stages, max_tokens);
}

namespace {

// Times under each memory policy of a pipeline's micro-batches.
class TimesByPolicy {
 public:
  TimesByPolicy(const strategy::Pipeline& pipeline, const CostModel& cost)
      : pipeline_(pipeline), cost_(cost) {}

  const MicroBatchTimes& of(const strategy::MemoryPolicy& policy) {
    std::unique_ptr<MicroBatchTimes>& times = times_[policy];
    if (times == nullptr) times = std::make_unique<MicroBatchTimes>(pipeline_, cost_.under(policy));
    return *times;
  }

 private:
  const strategy::Pipeline& pipeline_;
  const CostModel& cost_;
  std::map<strategy::MemoryPolicy, std::unique_ptr<MicroBatchTimes>> times_;
};

}  // namespace

const strategy::MemoryPolicy& policy_of(const strategy::PipelineMicroBatch& micro_batch,
                                        const CostModel& cost) {
  return micro_batch.memory.keeps_all() ? cost.policy() : micro_batch.memory;
}

const strategy::MemoryPolicy& policy_of(const strategy::Pass& pass, const CostModel& cost) {
  return pass.memory.keeps_all() ? cost.policy() : pass.memory;
}

std::vector<TimedMicroBatch> timed_micro_batches(const PipelinePlan& plan, const CostModel& cost) {
  TimesByPolicy times(plan.pipeline, cost);
  std::vector<TimedMicroBatch> timed;
  for (const strategy::Pass& pass : strategy::passes(plan))
    timed.push_back(times.of(policy_of(pass, cost)).of(plan, pass));
  return timed;
}

strategy::MemoryPolicy credit_policy(const PipelinePlan& plan, const CostModel& cost) {
  std::optional<strategy::MemoryPolicy> most;
  int64_t most_bytes = -1;
  for (const strategy::PipelineMicroBatch& micro_batch : plan.micro_batches) {
    const strategy::MemoryPolicy& policy = policy_of(micro_batch, cost);
    if (policy == most) continue;
    const int64_t bytes = cost::MemoryCost(cost.under(policy), plan.pipeline.scheme).held_bytes_per_token();
    if (bytes > most_bytes) most = policy;
    most_bytes = std::max(most_bytes, bytes);
  }
  return most.value_or(cost.policy());
}

PipelineLoad pipeline_load(const PipelinePlan& plan, const CostModel& cost, int world_size) {
  const strategy::Scheme& scheme = plan.pipeline.scheme;
  const CostModel credited = cost.under(credit_policy(plan, cost));
  PipelineLoad load = {.stages = scheme.pp,
                       .lanes = scheme.cp,
                       .credit_tokens = cost::MemoryCost(credited, scheme).credit_tokens(world_size),
                       .micro_batches = timed_micro_batches(plan, cost)};
  const std::vector<strategy::Pass> passes = strategy::passes(plan);
  for (size_t u = 0; u < load.micro_batches.size(); ++u) {
    TimedMicroBatch& micro_batch = load.micro_batches[u];
    const strategy::MemoryPolicy& policy = policy_of(passes[u], cost);
    if (policy != credited.policy())
      micro_batch.credit_tokens =
          cost::MemoryCost(credited, scheme).credit_of(world_size, policy, micro_batch.credit());
    // Capped here; graph::memory_fault reports micro-batches that do not fit.
    if (micro_batch.credit_tokens)
      micro_batch.credit_tokens = std::min(*micro_batch.credit_tokens, load.credit_tokens);
  }
  return load;
}

}  // namespace sluice::schedule
