#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "cost/memory_cost.h"
#include "schedule/pipeline_schedule.h"
#include "schedule/unit_table.h"

namespace sluice::schedule {
namespace {

using cost::CellKind;
using cost::CostModel;
using strategy::PipelinePlan;

// What a unit has on its lanes, and what its fullest lane shares with the others. Causal cutting gives every
// lane the same share of a sequence's attention, so that only whole sequences, which are their lane's alone,
// make lanes differ by more than tokens.
struct UnitWork {
  UnitWork(const strategy::Unit& unit, int64_t window) {
    for (const strategy::UnitSequence& sequence : unit.sequences)
      shared += cost::Work::of_lane(0, sequence, unit.lanes, window);
    if (unit.own.empty()) {
      shared.tokens = unit.tokens();
      lanes.push_back(shared);
      return;
    }
    for (int lane = unit.first_lane; lane < unit.end_lane(); ++lane) {
      cost::Work work{.tokens = unit.tokens_on(lane), .windowed = shared.windowed, .squares = shared.squares};
      int64_t shared_tokens = work.tokens;
      for (const strategy::UnitSequence& whole : unit.own[static_cast<size_t>(lane - unit.first_lane)]) {
        work += cost::Work::of_lane(0, whole, 1, window);
        shared_tokens -= whole.length_tokens;
      }
      shared.tokens = std::max(shared.tokens, shared_tokens);
      lanes.push_back(work);
    }
  }
  cost::Work fullest() const { return *std::ranges::max_element(lanes, {}, &cost::Work::tokens); }

  std::vector<cost::Work> lanes;  // the fullest alone where they differ by tokens alone
  cost::Work shared;
};

}  // namespace

UnitTimes::UnitTimes(const strategy::Pipeline& pipeline, const CostModel& priced)
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
    if (scheme_.share > 1)
      share_.emplace_back(cost, scheme_, strategy::share_runs(pipeline, stage, topology));
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

void UnitTimes::write(const cost::Work& work, UnitTable& table, int row) const {
  const std::span<UnitTable::Cells> cells = table.row(row);
  table.head(row).tokens = work.tokens;
  table.head(row).fused = fused_;
  table.head(row).first_backward_stage = first_backward_stage_;
  for (size_t s = 0; s < cells.size(); ++s) {
    cells[s] = like_[s] < s ? cells[like_[s]]
                            : UnitTable::Cells{forward_[s].of_work(work), backward_input_[s].of_work(work),
                                               backward_weight_[s].of_work(work), 0};
  }
  for (size_t boundary = 0; boundary < level_of_boundary_.size(); ++boundary) {
    const int level = level_of_boundary_[boundary];
    const bool like = boundary > 0 && level == level_of_boundary_[boundary - 1];
    cells[boundary].transfer_ns =
        like ? cells[boundary - 1].transfer_ns : cost_.transfer_ns(scheme_, work.tokens, level);
  }
}

TimedUnit UnitTimes::of(std::span<const cost::Work> lanes, int first_lane) const {
  return of(lanes, *std::ranges::max_element(lanes, {}, &cost::Work::tokens),
            {first_lane, first_lane + std::ssize(lanes)}, {});
}

TimedUnit UnitTimes::of(const strategy::Unit& unit) const {
  const UnitWork work(unit, cost_.window());
  return of(work.lanes, work.shared, {unit.first_lane, unit.end_lane()}, {unit.exchange, unit.nested_lanes});
}

TimedUnit UnitTimes::of(std::span<const cost::Work> works, const cost::Work& shared, base::Interval lanes,
                        const cost::ExchangeChoice& exchange) const {
  const auto stages = static_cast<size_t>(scheme_.pp);
  TimedUnit unit{.first_lane = static_cast<int>(lanes.begin),
                 .lanes = static_cast<int>(lanes.size()),
                 .fused = fused_,
                 .first_backward_stage = first_backward_stage_,
                 .forward_ns = std::vector<int64_t>(stages),
                 .backward_input_ns = std::vector<int64_t>(stages),
                 .backward_weight_ns = std::vector<int64_t>(stages)};
  const auto raise = [](int64_t& to, int64_t value) { to = std::max(to, value); };
  for (const cost::Work& work : works) {
    raise(unit.tokens, work.tokens);
    for (size_t s = 0; s < stages; ++s) {
      raise(unit.forward_ns[s], forward_[s].of_work(work));
      raise(unit.backward_input_ns[s], backward_input_[s].of_work(work));
      raise(unit.backward_weight_ns[s], backward_weight_[s].of_work(work));
    }
  }
  if (unit.lanes > 1) add_exchange(unit, shared, exchange);
  for (const int level : level_of_boundary_)
    unit.transfer_ns.push_back(cost_.transfer_ns(scheme_, unit.tokens, level));
  return unit;
}

namespace {

int64_t cell_ns(const TimedUnit& unit, CellKind kind, size_t stage) {
  switch (kind) {
    case CellKind::kForward: return unit.forward_ns[stage];
    case CellKind::kBackwardInput: return unit.backward_input_ns[stage];
    case CellKind::kBackwardWeight: return unit.backward_weight_ns[stage];
    case CellKind::kBackward: return unit.backward_input_ns[stage] + unit.backward_weight_ns[stage];
  }
  SLUICE_ASSERT(false, "unknown cell kind");
}

int64_t ring_ns(const TimedUnit& unit, CellKind kind, size_t stage) {
  if (unit.forward_ring_ns.empty() || kind == CellKind::kBackwardWeight) return 0;
  return kind == CellKind::kForward ? unit.forward_ring_ns[stage] : unit.backward_ring_ns[stage];
}

}  // namespace

UnitTimes::Slowest UnitTimes::slowest_of(const PipelinePlan& plan, const strategy::Pass& pass,
                                         const std::vector<TimedUnit>& units, CellKind kind,
                                         size_t stage) const {
  const auto slowest =
      std::ranges::max_element(units, {}, [&](const TimedUnit& unit) { return cell_ns(unit, kind, stage); });
  const int index = pass.units[static_cast<size_t>(slowest - units.begin())];
  return {plan.units[static_cast<size_t>(index)], cell_ns(*slowest, kind, stage),
          ring_ns(*slowest, kind, stage)};
}

std::vector<cost::SharedOperations> UnitTimes::operations_of(const Slowest& slowest, CellKind kind,
                                                             size_t stage) const {
  const UnitWork work(slowest.unit, cost_.window());
  return share_[stage].operations(kind, cost_.stage_run(scheme_, static_cast<int>(stage)), work.fullest(),
                                  slowest.compute_ns);
}

std::vector<cost::SharedOperations> UnitTimes::shared_operations(const PipelinePlan& plan,
                                                                 const strategy::Pass& pass, CellKind kind,
                                                                 int stage) const {
  std::vector<TimedUnit> units;
  for (const int index : pass.units) units.push_back(of(plan.units[static_cast<size_t>(index)]));
  const auto at = static_cast<size_t>(stage);
  return operations_of(slowest_of(plan, pass, units, kind, at), kind, at);
}

// Where lanes share nothing a pass is its only unit.
TimedUnit UnitTimes::of(const PipelinePlan& plan, const strategy::Pass& pass) const {
  const auto unit_at = [&](int index) -> const strategy::Unit& {
    return plan.units[static_cast<size_t>(index)];
  };
  if (scheme_.share == 1) return of(unit_at(pass.units.front()));
  std::vector<TimedUnit> units;
  for (const int index : pass.units) units.push_back(of(unit_at(index)));
  TimedUnit timed{.first_lane = pass.first_lane,
                  .lanes = pass.lanes,
                  .fused = fused_,
                  .first_backward_stage = first_backward_stage_};
  int64_t credit = 0;
  for (const TimedUnit& unit : units) {
    timed.tokens = std::max(timed.tokens, unit.tokens);
    credit = std::max(credit, unit.credit());
  }
  if (credit > timed.tokens) timed.credit_tokens = credit;
  // Appends what the slowest unit takes of a cell, with gathers and sums.
  const auto add = [&](CellKind kind, size_t stage, std::vector<int64_t>& to_ns,
                       std::vector<int64_t>& share_ns, std::vector<int64_t>* exchange_ns) {
    const Slowest slowest = slowest_of(plan, pass, units, kind, stage);
    to_ns.push_back(cost::pass_ns(operations_of(slowest, kind, stage)));
    share_ns.push_back(to_ns.back() - slowest.compute_ns);
    if (exchange_ns != nullptr) exchange_ns->push_back(slowest.ring_ns);
  };
  const bool splits = cost_.splits_backward(scheme_);
  for (size_t s = 0; s < static_cast<size_t>(scheme_.pp); ++s) {
    add(CellKind::kForward, s, timed.forward_ns, timed.forward_share_ns, &timed.forward_ring_ns);
    add(splits ? CellKind::kBackwardInput : CellKind::kBackward, s, timed.backward_input_ns,
        timed.backward_share_ns, &timed.backward_ring_ns);
    if (splits) {
      add(CellKind::kBackwardWeight, s, timed.backward_weight_ns, timed.weight_share_ns, nullptr);
    } else {
      timed.backward_weight_ns.push_back(0);
    }
  }
  for (const int level : level_of_boundary_)
    timed.transfer_ns.push_back(cost_.transfer_ns(scheme_, timed.tokens, level));
  return timed;
}

void UnitTimes::add_exchange(TimedUnit& unit, const cost::Work& shared,
                             const cost::ExchangeChoice& exchange) const {
  if (exchange != cost::ExchangeChoice{})
    unit.credit_tokens = exchanges_->credit_tokens(exchange, unit.lanes, unit.tokens);
  for (size_t s = 0; s < lanes_.size(); ++s) {
    const auto [forward_ns, backward_ns] =
        exchanges_->exposed(static_cast<int>(s), shared, place(s, unit.first_lane, unit.lanes), exchange);
    unit.forward_ring_ns.push_back(forward_ns);
    unit.backward_ring_ns.push_back(backward_ns);
    unit.forward_ns[s] += forward_ns;
    unit.backward_input_ns[s] += backward_ns;
  }
}

cost::LanePlace UnitTimes::place(size_t stage, int first_lane, int lanes) const {
  const strategy::StageLanes& of_stage = lanes_[stage];
  return cost::LanePlace::of(
      std::span(of_stage.node).subspan(static_cast<size_t>(first_lane), static_cast<size_t>(lanes)),
      of_stage.level_of(first_lane, lanes));
}

void UnitTimes::write(const strategy::Unit& unit, const cost::ExchangeChoice& exchange, UnitTable& table,
                      int row) const {
  const UnitWork work(unit, cost_.window());
  const cost::Work fullest = work.fullest();
  write(fullest, table, row);
  UnitTable::Head& head = table.head(row);
  head.first_lane = unit.first_lane;
  head.lanes = unit.lanes;
  if (exchange != cost::ExchangeChoice{})
    head.tokens = exchanges_->credit_tokens(exchange, unit.lanes, fullest.tokens);
  const std::span<UnitTable::Cells> cells = table.row(row);
  const auto raise = [](int64_t& to, int64_t value) { to = std::max(to, value); };
  for (size_t s = 0; s < cells.size() && !unit.own.empty(); ++s) {
    for (const cost::Work& lane : work.lanes) {
      raise(cells[s].forward_ns, forward_[s].of_work(lane));
      raise(cells[s].backward_input_ns, backward_input_[s].of_work(lane));
      raise(cells[s].backward_weight_ns, backward_weight_[s].of_work(lane));
    }
  }
  for (size_t s = 0; s < cells.size() && unit.lanes > 1; ++s) {
    if (exchange_like_[s] < s) continue;
    const auto [forward_ns, backward_ns] = exchanges_->exposed(
        static_cast<int>(s), work.shared, place(s, unit.first_lane, unit.lanes), exchange);
    for (size_t like = s; like < cells.size(); ++like) {
      if (exchange_like_[like] != s) continue;
      cells[like].forward_ns += forward_ns;
      cells[like].backward_input_ns += backward_ns;
    }
  }
}

cost::ExchangeChoice UnitTimes::cheapest_exchange(const strategy::Unit& unit, int64_t max_tokens) const {
  if (unit.lanes == 1) return {};
  std::vector<cost::Exchanges::StagePlace> stages;
  for (size_t s = 0; s < exchange_like_.size(); ++s) {
    if (exchange_like_[s] != s) continue;
    stages.push_back({static_cast<int>(s), place(s, unit.first_lane, unit.lanes)});
  }
  const UnitWork work(unit, cost_.window());
  return exchanges_->cheapest(work.shared, work.fullest().tokens, stages, max_tokens);
}

namespace {

// Times of the policies that a pipeline's micro-batches run under.
class TimesByPolicy {
 public:
  TimesByPolicy(const strategy::Pipeline& pipeline, const CostModel& cost)
      : pipeline_(pipeline), cost_(cost) {}

  const UnitTimes& of(const strategy::MemoryPolicy& policy) {
    std::unique_ptr<UnitTimes>& times = times_[policy];
    if (times == nullptr) times = std::make_unique<UnitTimes>(pipeline_, cost_.under(policy));
    return *times;
  }

 private:
  const strategy::Pipeline& pipeline_;
  const CostModel& cost_;
  std::map<strategy::MemoryPolicy, std::unique_ptr<UnitTimes>> times_;
};

}  // namespace

const strategy::MemoryPolicy& policy_of(const strategy::Unit& unit, const CostModel& cost) {
  return unit.memory.keeps_all() ? cost.policy() : unit.memory;
}

const strategy::MemoryPolicy& policy_of(const strategy::Pass& pass, const CostModel& cost) {
  return pass.memory.keeps_all() ? cost.policy() : pass.memory;
}

std::vector<TimedUnit> timed_units(const PipelinePlan& plan, const CostModel& cost) {
  TimesByPolicy times(plan.pipeline, cost);
  std::vector<TimedUnit> timed;
  for (const strategy::Pass& pass : strategy::passes(plan))
    timed.push_back(times.of(policy_of(pass, cost)).of(plan, pass));
  return timed;
}

strategy::MemoryPolicy credit_policy(const PipelinePlan& plan, const CostModel& cost) {
  std::optional<strategy::MemoryPolicy> most;
  int64_t most_bytes = -1;
  for (const strategy::Unit& unit : plan.units) {
    const strategy::MemoryPolicy& policy = policy_of(unit, cost);
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
                       .units = timed_units(plan, cost)};
  const std::vector<strategy::Pass> passes = strategy::passes(plan);
  for (size_t u = 0; u < load.units.size(); ++u) {
    TimedUnit& unit = load.units[u];
    const strategy::MemoryPolicy& policy = policy_of(passes[u], cost);
    if (policy != credited.policy())
      unit.credit_tokens = cost::MemoryCost(credited, scheme).credit_of(world_size, policy, unit.credit());
    // What doesn't fit all the same is told by graph::memory_fault.
    if (unit.credit_tokens) unit.credit_tokens = std::min(*unit.credit_tokens, load.credit_tokens);
  }
  return load;
}

}  // namespace sluice::schedule
