#include "published/lane_offload.h"

#include <algorithm>
#include <tuple>

#include "cost/memory_cost.h"

namespace sluice::published {

LaneOffload::LaneOffload(OffloadRule rule, const LaneReference& reference, std::span<const int64_t> lengths,
                         const cost::CostModel& cost, int world_size)
    : rule_(rule), reference_(reference), cost_(cost), world_size_(world_size) {
  for (const int64_t length : lengths) mean_ns_ += reference.scheme().lane_ns(length, 1) / reference.lanes();
}

plan::OffloadProblem LaneOffload::problem(int64_t length) const {
  const strategy::Scheme& scheme = reference_.scheme().scheme();
  const int64_t first = cost_.program().blocks().begin;
  const int64_t bytes = cost::MemoryCost(cost_, scheme).kept_bytes_per_token(first);
  return {.layers = cost_.stage_blocks(scheme, 0),
          .sequence_bytes = bytes * length,
          .lane_bytes = bytes * reference_.lane_tokens(),
          .layer_ns = cost_.cell_ns(scheme, cost::CellKind::kForward, {first, first + 1},
                                    cost::Work::of_lane(length, length, 1, cost_.window())),
          .host_bytes_per_s = cost_.options().host.bytes_per_s};
}

int64_t LaneOffload::most_tokens(int permille) const {
  const auto found = most_tokens_.find(permille);
  if (found != most_tokens_.end()) return found->second;
  const strategy::Scheme& scheme = reference_.scheme().scheme();
  const int64_t alone =
      cost::MemoryCost(cost_.under({.offload_permille = permille}), scheme).max_len_tokens(world_size_);
  // A rank keeps transient memory for its longest micro-batch at all times.
  const int64_t free_bytes =
      cost_.options().memory.device_bytes - cost::MemoryCost(cost_, scheme).fixed_bytes(world_size_) -
      reference_.lane_tokens() * cost::MemoryCost(cost_, scheme).held_bytes_per_token();
  const int64_t beside = free_bytes / std::max<int64_t>(1, cost_.options().memory.transient_bytes_per_token);
  return most_tokens_[permille] = std::max(reference_.lane_tokens(), std::min(alone, beside));
}

LaneCut LaneOffload::cut_with(const plan::OffloadProblem& problem, int64_t length, int permille) const {
  const int64_t two_chunks = most_tokens(permille) / 2 * 2;
  const int64_t held = (length + two_chunks - 1) / two_chunks;
  const int64_t lanes = std::max(held, plan::lanes_of_offload(problem, permille));
  const int kept = reference_.fewest_lanes(length);
  if (lanes >= kept) return {.lanes = kept, .memory = {}};
  return {.lanes = static_cast<int>(lanes), .memory = {.offload_permille = permille}};
}

LaneCut LaneOffload::of_least_work(const plan::OffloadProblem& problem, int64_t length,
                                   int most_permille) const {
  constexpr int kStepPermille = 50;
  LaneCut best;
  std::tuple<bool, int64_t> least;
  for (int permille = 0; permille <= most_permille; permille += kStepPermille) {
    const LaneCut cut = cut_with(problem, length, permille);
    const int64_t ns = reference_.scheme().lane_ns(length, cut.lanes);
    const bool late = ns > mean_ns_;
    const std::tuple key(late, late ? ns : ns * cut.lanes);
    if (permille > 0 && key >= least) continue;
    best = cut;
    least = key;
  }
  return best;
}

LaneCut LaneOffload::cut(int64_t length) const {
  if (length <= reference_.lane_tokens()) return {};
  const plan::OffloadProblem of = problem(length);
  const plan::OffloadChoice choice = plan::choose_offload(of);
  if (rule_ == OffloadRule::kFewestLanes) return cut_with(of, length, choice.permille);
  return of_least_work(of, length, rule_ == OffloadRule::kNone ? 0 : choice.permille);
}

}  // namespace sluice::published
