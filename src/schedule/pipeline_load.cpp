#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "schedule/makespan.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::schedule {
namespace {

using cost::CellKind;
using cost::CostModel;
using strategy::MicroBatch;
using strategy::PipelinePlan;

// Micro-batches that run as one unit: one of each lane from `first_lane` on.
struct Tie {
  int first_lane = 0;
  std::vector<const MicroBatch*> micro_batches;
};

// The micro-batches of all lanes as ties, in the order of injection.
std::vector<Tie> read_ties(const PipelinePlan& plan) {
  std::vector<Tie> ties;
  std::vector<std::vector<int>> lanes(plan.lanes.size());
  std::map<int, int> tie_of_ring;
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    for (const MicroBatch& micro_batch : plan.lanes[lane]) {
      int tie = static_cast<int>(ties.size());
      if (micro_batch.ring) tie = tie_of_ring.emplace(*micro_batch.ring, tie).first->second;
      if (tie == static_cast<int>(ties.size())) ties.push_back({static_cast<int>(lane), {}});
      ties[static_cast<size_t>(tie)].micro_batches.push_back(&micro_batch);
      lanes[lane].push_back(tie);
    }
  }
  std::vector<Tie> ordered;
  for (const int tie : injection_order(lanes)) ordered.push_back(std::move(ties[static_cast<size_t>(tie)]));
  return ordered;
}

// Tokens of each sequence of a ring over all its lanes.
std::map<int32_t, int64_t> ring_lengths(const Tie& tie) {
  std::map<int32_t, int64_t> lengths;
  for (const MicroBatch* micro_batch : tie.micro_batches) {
    for (const strategy::Piece& piece : micro_batch->pieces) lengths[piece.sequence] += piece.tokens();
  }
  return lengths;
}

// By lane. Causal cutting gives every lane of a ring the same share of a sequence's attention; a whole
// sequence is its lane's alone.
std::vector<cost::Work> works_of(const Tie& tie) {
  const int lanes = static_cast<int>(tie.micro_batches.size());
  std::vector<cost::Work> works(tie.micro_batches.size());
  if (lanes == 1) {
    for (const strategy::Piece& piece : tie.micro_batches.front()->pieces) {
      works.front() += cost::Work::of_lane(piece.tokens(), piece.tokens(), 1);
    }
    return works;
  }
  std::map<int32_t, int64_t> shared = ring_lengths(tie);
  for (size_t lane = 0; lane < works.size(); ++lane) {
    for (const strategy::Piece& piece : tie.micro_batches[lane]->pieces) {
      works[lane].tokens += piece.tokens();
      const auto found = shared.find(piece.sequence);
      if (found == shared.end() || found->second != piece.tokens()) continue;
      works[lane] += cost::Work::of_lane(0, piece.tokens(), 1);
      shared.erase(found);
    }
  }
  for (const auto& [sequence, length] : shared) {
    for (cost::Work& work : works) work += cost::Work::of_lane(0, length, lanes);
  }
  return works;
}

// By lane, the first of the lanes before it that lie on its node with all between them, on all TP ranks.
std::vector<int> in_node_from(const strategy::Pipeline& pipeline, const CostModel& cost, int stage) {
  const int per_node = cost.options().gpus_per_node;
  std::vector<int> from(static_cast<size_t>(pipeline.scheme.cp), 0);
  for (int lane = 1; lane < pipeline.scheme.cp; ++lane) {
    bool same = true;
    for (int t = 0; t < pipeline.scheme.tp; ++t) {
      same = same &&
             pipeline.rank_of(stage, lane, t) / per_node == pipeline.rank_of(stage, lane - 1, t) / per_node;
    }
    from[static_cast<size_t>(lane)] = same ? from[static_cast<size_t>(lane) - 1] : lane;
  }
  return from;
}

}  // namespace

std::vector<int> injection_order(const std::vector<std::vector<int>>& lanes) {
  std::vector<int> missing;  // by unit: lanes that have not reached it
  for (const std::vector<int>& lane : lanes) {
    for (const int unit : lane) {
      if (static_cast<size_t>(unit) >= missing.size()) missing.resize(static_cast<size_t>(unit) + 1, 0);
      ++missing[static_cast<size_t>(unit)];
    }
  }
  std::vector<size_t> next(lanes.size(), 0);
  const auto front = [&](size_t lane) {
    return next[lane] < lanes[lane].size() ? lanes[lane][next[lane]] : -1;
  };
  const auto reach = [&](size_t lane) {
    if (front(lane) >= 0) --missing[static_cast<size_t>(front(lane))];
  };
  for (size_t lane = 0; lane < lanes.size(); ++lane) reach(lane);
  std::vector<int> order;
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      const int unit = front(lane);
      const bool first = lane == 0 || front(lane - 1) != unit;
      if (unit < 0 || !first || missing[static_cast<size_t>(unit)] > 0) continue;
      order.push_back(unit);
      progress = true;
      for (size_t other = lane; other < lanes.size() && front(other) == unit; ++other) {
        ++next[other];
        reach(other);
      }
    }
  }
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    SLUICE_ASSERT(front(lane) < 0, base::text("rings of a pipeline cross: lane ", lane,
                                              " cannot start its micro-batch ", next[lane]));
  }
  return order;
}

bool boundary_in_node(const strategy::Pipeline& pipeline, const CostModel& cost, int stage) {
  const int per_node = cost.options().gpus_per_node;
  for (int lane = 0; lane < pipeline.scheme.cp; ++lane) {
    for (int t = 0; t < pipeline.scheme.tp; ++t) {
      if (pipeline.rank_of(stage, lane, t) / per_node != pipeline.rank_of(stage + 1, lane, t) / per_node)
        return false;
    }
  }
  return true;
}

UnitTimes::UnitTimes(const strategy::Pipeline& pipeline, const CostModel& cost)
    : scheme_(pipeline.scheme), cost_(cost), fused_(scheme_.pp > 1 && !cost.splits_backward(scheme_)) {
  for (int stage = 0; stage < scheme_.pp; ++stage) {
    const CostModel::CellPart part = cost.whole_stage(scheme_, stage);
    forward_.push_back(cost.cell_times(scheme_, CellKind::kForward, part));
    backward_input_.push_back(cost.cell_times(scheme_, CellKind::kBackwardInput, part));
    backward_weight_.push_back(cost.cell_times(scheme_, CellKind::kBackwardWeight, part));
    if (stage > 0) in_node_.push_back(boundary_in_node(pipeline, cost, stage - 1));
    size_t like = 0;
    while (forward_[like] != forward_.back() || backward_input_[like] != backward_input_.back() ||
           backward_weight_[like] != backward_weight_.back()) {
      ++like;
    }
    like_.push_back(like);
    if (scheme_.cp == 1) continue;
    rings_.push_back({.in_node_from = in_node_from(pipeline, cost, stage),
                      .forward = {cost.ring_times(scheme_, CellKind::kForward, part, false),
                                  cost.ring_times(scheme_, CellKind::kForward, part, true)},
                      .backward = {cost.ring_times(scheme_, CellKind::kBackwardInput, part, false),
                                   cost.ring_times(scheme_, CellKind::kBackwardInput, part, true)}});
    size_t ring_like = 0;
    while (!alike(rings_[ring_like], rings_.back())) ++ring_like;
    ring_like_.push_back(ring_like);
  }
}

bool UnitTimes::alike(const Rings& a, const Rings& b) {
  const auto same = [](const cost::RingTimes& x, const cost::RingTimes& y) {
    return x.link == y.link && x.layers == y.layers && x.bytes_per_token == y.bytes_per_token && x.a == y.a;
  };
  bool all = a.in_node_from == b.in_node_from;
  for (const size_t in_node : {0, 1}) {
    all =
        all && same(a.forward[in_node], b.forward[in_node]) && same(a.backward[in_node], b.backward[in_node]);
  }
  return all;
}

void UnitTimes::write(const cost::Work& work, UnitTable& table, int row) const {
  const std::span<UnitTable::Cells> cells = table.row(row);
  table.tokens(row) = work.tokens;
  table.set_fused(row, fused_);
  for (size_t s = 0; s < cells.size(); ++s) {
    cells[s] = like_[s] < s ? cells[like_[s]]
                            : UnitTable::Cells{forward_[s].of_work(work), backward_input_[s].of_work(work),
                                               backward_weight_[s].of_work(work), 0};
  }
  int64_t transfer_ns[2] = {-1, -1};  // between nodes and inside one
  for (size_t boundary = 0; boundary < in_node_.size(); ++boundary) {
    int64_t& ns = transfer_ns[in_node_[boundary] ? 1 : 0];
    if (ns < 0) ns = cost_.transfer_ns(scheme_, work.tokens, in_node_[boundary]);
    cells[boundary].transfer_ns = ns;
  }
}

Unit UnitTimes::of(std::span<const cost::Work> lanes, int first_lane) const {
  const auto stages = static_cast<size_t>(scheme_.pp);
  Unit unit{.first_lane = first_lane,
            .lanes = static_cast<int>(lanes.size()),
            .fused = fused_,
            .forward_ns = std::vector<int64_t>(stages),
            .backward_input_ns = std::vector<int64_t>(stages),
            .backward_weight_ns = std::vector<int64_t>(stages)};
  const auto raise = [](int64_t& to, int64_t value) { to = std::max(to, value); };
  for (const cost::Work& work : lanes) {
    raise(unit.tokens, work.tokens);
    for (size_t s = 0; s < stages; ++s) {
      raise(unit.forward_ns[s], forward_[s].of_work(work));
      raise(unit.backward_input_ns[s], backward_input_[s].of_work(work));
      raise(unit.backward_weight_ns[s], backward_weight_[s].of_work(work));
    }
  }
  if (unit.lanes > 1) add_rings(unit, lanes);
  for (const bool in_node : in_node_) {
    unit.transfer_ns.push_back(cost_.transfer_ns(scheme_, unit.tokens, in_node));
  }
  return unit;
}

// Attention is the same on all lanes of a ring, so the lane with the most tokens waits longest.
void UnitTimes::add_rings(Unit& unit, std::span<const cost::Work> lanes) const {
  const auto fullest =
      std::max_element(lanes.begin(), lanes.end(),
                       [](const cost::Work& a, const cost::Work& b) { return a.tokens < b.tokens; });
  for (size_t s = 0; s < rings_.size(); ++s) {
    const auto [forward_ns, backward_ns] = exposed_ns(s, *fullest, unit.first_lane, unit.lanes);
    unit.forward_ring_ns.push_back(forward_ns);
    unit.backward_ring_ns.push_back(backward_ns);
    unit.forward_ns[s] += forward_ns;
    unit.backward_input_ns[s] += backward_ns;
  }
}

std::pair<int64_t, int64_t> UnitTimes::exposed_ns(size_t stage, const cost::Work& work, int first_lane,
                                                  int lanes) const {
  const Rings& rings = rings_[stage];
  const auto last_lane = static_cast<size_t>(first_lane + lanes - 1);
  const size_t in_node = rings.in_node_from[last_lane] <= first_lane ? 1 : 0;
  return {rings.forward[in_node].exposed_ns(work, lanes), rings.backward[in_node].exposed_ns(work, lanes)};
}

void UnitTimes::write_ring(const cost::Work& work, int first_lane, int lanes, UnitTable& table,
                           int row) const {
  const std::span<UnitTable::Cells> cells = table.row(row);
  for (size_t s = 0; s < cells.size(); ++s) {
    if (ring_like_[s] < s) continue;
    const auto [forward_ns, backward_ns] = exposed_ns(s, work, first_lane, lanes);
    for (size_t like = s; like < cells.size(); ++like) {
      if (ring_like_[like] != s) continue;
      cells[like].forward_ns += forward_ns;
      cells[like].backward_input_ns += backward_ns;
    }
  }
}

namespace {

// Cost models and times of the policies that a pipeline's micro-batches run under.
class TimesByPolicy {
 public:
  TimesByPolicy(const strategy::Pipeline& pipeline, const CostModel& cost)
      : pipeline_(pipeline), cost_(cost) {}

  const UnitTimes& of(const strategy::MemoryPolicy& policy) {
    std::unique_ptr<Entry>& entry = entries_[policy];
    if (entry == nullptr) entry = std::make_unique<Entry>(pipeline_, cost_, policy);
    return entry->times;
  }

 private:
  struct Entry {
    Entry(const strategy::Pipeline& pipeline, const CostModel& base, const strategy::MemoryPolicy& policy)
        : cost(base.under(policy)), times(pipeline, cost) {}
    CostModel cost;
    UnitTimes times;
  };

  const strategy::Pipeline& pipeline_;
  const CostModel& cost_;
  std::map<strategy::MemoryPolicy, std::unique_ptr<Entry>> entries_;
};

}  // namespace

const strategy::MemoryPolicy& policy_of(const MicroBatch& micro_batch, const CostModel& cost) {
  return micro_batch.memory.keeps_all() ? cost.policy() : micro_batch.memory;
}

std::vector<Unit> pipeline_units(const PipelinePlan& plan, const CostModel& cost) {
  TimesByPolicy times(plan.pipeline, cost);
  std::vector<Unit> units;
  for (const Tie& tie : read_ties(plan)) {
    units.push_back(times.of(policy_of(*tie.micro_batches.front(), cost)).of(works_of(tie), tie.first_lane));
  }
  return units;
}

strategy::MemoryPolicy credit_policy(const PipelinePlan& plan, const CostModel& cost) {
  std::optional<strategy::MemoryPolicy> most;
  int64_t most_bytes = -1;
  for (const std::vector<MicroBatch>& lane : plan.lanes) {
    for (const MicroBatch& micro_batch : lane) {
      const strategy::MemoryPolicy& policy = policy_of(micro_batch, cost);
      if (policy == most) continue;
      const int64_t bytes = cost.under(policy).held_bytes_per_token(plan.pipeline.scheme);
      if (bytes > most_bytes) most = policy;
      most_bytes = std::max(most_bytes, bytes);
    }
  }
  return most.value_or(cost.policy());
}

PipelineLoad pipeline_load(const PipelinePlan& plan, const CostModel& cost, int world_size) {
  const strategy::Scheme& scheme = plan.pipeline.scheme;
  const CostModel credited = cost.under(credit_policy(plan, cost));
  PipelineLoad load = {.stages = scheme.pp,
                       .lanes = scheme.cp,
                       .credit_tokens = credited.credit_tokens(scheme, world_size),
                       .units = pipeline_units(plan, cost)};
  const std::vector<Tie> ties = read_ties(plan);
  for (size_t u = 0; u < ties.size(); ++u) {
    const strategy::MemoryPolicy& policy = policy_of(*ties[u].micro_batches.front(), cost);
    if (policy == credited.policy()) continue;
    load.units[u].credit_tokens = credited.credit_of(scheme, world_size, policy, load.units[u].tokens);
  }
  return load;
}

}  // namespace sluice::schedule
