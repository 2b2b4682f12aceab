#include "plan/scheme_cost.h"

#include <algorithm>

namespace sluice::plan {

SchemeCost::SchemeCost(const strategy::Scheme& scheme, const cost::CostModel& cost, int world_size)
    : scheme_(scheme),
      max_len_tokens_(cost.max_len_tokens(scheme, world_size)),
      credit_tokens_(cost.credit_tokens(scheme, world_size)),
      util_len_tokens_(cost.util_len_tokens(scheme)),
      intra_(cost.options().intra),
      inter_(cost.options().inter),
      row_bytes_(cost.transfer_bytes(scheme, scheme.tp)) {
  for (int stage = 0; stage < scheme.pp; ++stage) {
    const cost::Quadratic times = cost.stage_times(scheme, stage);
    if (std::find(stages_.begin(), stages_.end(), times) == stages_.end()) stages_.push_back(times);
  }
  using cost::CellKind;
  for (int stage = 0; stage < scheme.pp; ++stage) {
    const cost::CostModel::CellPart part = cost.whole_stage(scheme, stage);
    cells_.push_back({cost.cell_times(scheme, CellKind::kForward, part),
                      cost.cell_times(scheme, CellKind::kBackwardInput, part),
                      cost.cell_times(scheme, CellKind::kBackwardWeight, part),
                      cost.stage_times(scheme, stage)});
  }
}

int64_t SchemeCost::sequence_ns(int64_t length) const {
  const cost::Work work = cost::Work::of_lane(length, length, 1);
  int64_t slowest = 0;
  for (const cost::Quadratic& stage : stages_) {
    const auto share_ns =
        static_cast<int64_t>(cost::Wide{stage.c_ns} * length / std::max<int64_t>(max_len_tokens_, 1));
    slowest = std::max(slowest, stage.of_work(work) - stage.c_ns + share_ns);
  }
  return slowest;
}

int64_t SchemeCost::published_ns(int64_t length) const {
  const cost::Work work = cost::Work::of_lane(length, length, 1);
  int64_t slowest = 0;
  for (const cost::Quadratic& stage : stages_) slowest = std::max(slowest, stage.of_work(work));
  return slowest;
}

int64_t SchemeCost::micro_batch_ns() const {
  int64_t slowest = 0;
  for (const cost::Quadratic& stage : stages_) slowest = std::max(slowest, stage.c_ns);
  return slowest;
}

int64_t SchemeCost::floor_ns(int stage, int64_t length) const {
  const cost::Quadratic& all = cells_[static_cast<size_t>(stage)].all;
  const cost::Work work = cost::Work::of_lane(length, length, 1);
  const cost::Wide fixed =
      all.of_work_fixed(work) + (cost::Wide{all.c_ns} << cost::Quadratic::kFractionBits) * length /
                                    std::max<int64_t>(max_len_tokens_, 1);
  return std::max<int64_t>(0, static_cast<int64_t>(fixed >> cost::Quadratic::kFractionBits) - 2);
}

int64_t SchemeCost::floor_ns(int stage, const cost::Work& work, int sequences) const {
  const cost::Quadratic& all = cells_[static_cast<size_t>(stage)].all;
  const int64_t most = std::max<int64_t>(max_len_tokens_, 1);
  const int64_t micro_batches = std::max<int64_t>(1, (work.tokens + most - 1) / most);
  return std::max<int64_t>(0, all.of_work(work) + all.c_ns * (micro_batches - 1) - 2 * sequences);
}

// No transfer is faster than on the better of the links.
int64_t SchemeCost::transfer_ns(int64_t tokens) const {
  const int64_t bytes = (tokens + scheme_.tp - 1) / scheme_.tp * row_bytes_;
  return std::min(intra_.of_bytes(bytes), inter_.of_bytes(bytes));
}

int64_t SchemeCost::fill_ns(int stage, int64_t shortest) const {
  const cost::Work work = cost::Work::of_lane(shortest, shortest, 1);
  int64_t fill_ns = stage * transfer_ns(shortest);
  for (int below = 0; below < stage; ++below) {
    fill_ns += cells_[static_cast<size_t>(below)].forward.of_work(work);
  }
  return fill_ns;
}

int64_t SchemeCost::path_ns(int64_t length) const {
  const cost::Work work = cost::Work::of_lane(length, length, 1);
  int64_t path_ns = 2 * (scheme_.pp - 1) * transfer_ns(length) + cells_[0].backward_weight.of_work(work);
  for (const Cells& stage : cells_) {
    path_ns += stage.forward.of_work(work) + stage.backward_input.of_work(work);
  }
  return path_ns;
}

int SchemeCost::busiest_stage(const cost::Work& work, int64_t shortest) const {
  int busiest = 0;
  int64_t most_ns = -1;
  for (int stage = 0; stage < scheme_.pp; ++stage) {
    const int64_t ns = cells_[static_cast<size_t>(stage)].all.of_work(work) + fill_ns(stage, shortest);
    if (ns > most_ns) busiest = stage;
    most_ns = std::max(most_ns, ns);
  }
  return busiest;
}

}  // namespace sluice::plan
