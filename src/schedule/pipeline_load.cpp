#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::schedule {
namespace {

using cost::CellKind;
using cost::CostModel;
using strategy::MicroBatch;
using strategy::PipelinePlan;

// Micro-batches that run as one unit: micro-batch `index[i]` of lane `first_lane` + i.
struct Tie {
  int first_lane = 0;
  std::vector<const MicroBatch*> micro_batches;
};

// Walks all lanes side by side and emits units so that each lane keeps its own order.
class TieReader {
 public:
  explicit TieReader(const PipelinePlan& plan) : plan_(plan), next_(plan.lanes.size(), 0) {}

  std::vector<Tie> read() {
    std::vector<Tie> ties;
    bool progress = true;
    while (progress) {
      progress = false;
      for (size_t lane = 0; lane < next_.size(); ++lane) {
        if (front(lane) == nullptr || !complete(lane)) continue;
        ties.push_back(take(lane));
        progress = true;
      }
    }
    for (size_t lane = 0; lane < next_.size(); ++lane) {
      SLUICE_ASSERT(front(lane) == nullptr, base::text("rings of a pipeline cross: lane ", lane,
                                                       " cannot start ring ", *front(lane)->ring));
    }
    return ties;
  }

 private:
  const MicroBatch* front(size_t lane) const {
    return next_[lane] < plan_.lanes[lane].size() ? &plan_.lanes[lane][next_[lane]] : nullptr;
  }
  bool in_ring(size_t lane, int ring) const {
    return std::any_of(plan_.lanes[lane].begin(), plan_.lanes[lane].end(),
                       [&](const MicroBatch& m) { return m.ring == ring; });
  }
  // Whether `lane` is the first of its next unit's lanes and the unit is next on all of them.
  bool complete(size_t lane) const {
    const std::optional<int> ring = front(lane)->ring;
    if (!ring) return true;
    for (size_t other = 0; other < next_.size(); ++other) {
      if (!in_ring(other, *ring)) continue;
      if (other < lane || front(other) == nullptr || front(other)->ring != ring) return false;
    }
    return true;
  }
  Tie take(size_t lane) {
    Tie tie{.first_lane = static_cast<int>(lane), .micro_batches = {front(lane)}};
    const std::optional<int> ring = front(lane)->ring;
    ++next_[lane];
    for (size_t other = lane + 1; ring && other < next_.size(); ++other) {
      if (front(other) == nullptr || front(other)->ring != ring) break;
      tie.micro_batches.push_back(front(other));
      ++next_[other];
    }
    return tie;
  }

  const PipelinePlan& plan_;
  std::vector<size_t> next_;
};

// Tokens of each sequence of a ring over all its lanes.
int64_t ring_length(const Tie& tie, int32_t sequence) {
  int64_t length = 0;
  for (const MicroBatch* micro_batch : tie.micro_batches) {
    for (const strategy::Piece& piece : micro_batch->pieces)
      length += piece.sequence == sequence ? piece.tokens() : 0;
  }
  return length;
}

// Causal cutting gives every lane of a ring the same share of a sequence's attention.
cost::Work work_of(const Tie& tie, const MicroBatch& micro_batch) {
  const int lanes = static_cast<int>(tie.micro_batches.size());
  cost::Work work;
  if (lanes == 1) {
    for (const strategy::Piece& piece : micro_batch.pieces) {
      work += cost::Work::of_lane(piece.tokens(), piece.tokens(), 1);
    }
    return work;
  }
  std::vector<int32_t> counted;  // a sequence has two pieces on a lane
  for (const strategy::Piece& piece : micro_batch.pieces) {
    const bool first = std::find(counted.begin(), counted.end(), piece.sequence) == counted.end();
    work += cost::Work::of_lane(piece.tokens(), first ? ring_length(tie, piece.sequence) : 0, lanes);
    if (first) counted.push_back(piece.sequence);
  }
  return work;
}

}  // namespace

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
    : scheme_(pipeline.scheme), cost_(cost) {
  for (int stage = 0; stage < scheme_.pp; ++stage) {
    const CostModel::CellPart part = cost.whole_stage(scheme_, stage);
    forward_.push_back(cost.cell_times(scheme_, CellKind::kForward, part));
    backward_input_.push_back(cost.cell_times(scheme_, CellKind::kBackwardInput, part));
    backward_weight_.push_back(cost.cell_times(scheme_, CellKind::kBackwardWeight, part));
    if (stage > 0) in_node_.push_back(boundary_in_node(pipeline, cost, stage - 1));
  }
}

Unit UnitTimes::of(std::span<const cost::Work> lanes, int first_lane) const {
  const auto stages = static_cast<size_t>(scheme_.pp);
  Unit unit{.first_lane = first_lane,
            .lanes = static_cast<int>(lanes.size()),
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
  for (const bool in_node : in_node_) {
    unit.transfer_ns.push_back(cost_.transfer_ns(scheme_, unit.tokens, in_node));
  }
  return unit;
}

std::vector<Unit> pipeline_units(const PipelinePlan& plan, const CostModel& cost) {
  const UnitTimes times(plan.pipeline, cost);
  std::vector<Unit> units;
  for (const Tie& tie : TieReader(plan).read()) {
    std::vector<cost::Work> lanes;
    for (const MicroBatch* micro_batch : tie.micro_batches) lanes.push_back(work_of(tie, *micro_batch));
    units.push_back(times.of(lanes, tie.first_lane));
  }
  return units;
}

PipelineLoad pipeline_load(const PipelinePlan& plan, const CostModel& cost, int world_size) {
  const strategy::Scheme& scheme = plan.pipeline.scheme;
  return {.stages = scheme.pp,
          .lanes = scheme.cp,
          .credit_tokens = cost.credit_tokens(scheme, world_size),
          .units = pipeline_units(plan, cost)};
}

}  // namespace sluice::schedule
