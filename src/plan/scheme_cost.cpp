#include "plan/scheme_cost.h"

#include <algorithm>

namespace sluice::plan {

SchemeCost::SchemeCost(const strategy::Scheme& scheme, const cost::CostModel& cost, int world_size)
    : scheme_(scheme),
      max_len_tokens_(cost.max_len_tokens(scheme, world_size)),
      credit_tokens_(cost.credit_tokens(scheme, world_size)) {
  for (int stage = 0; stage < scheme.pp; ++stage) {
    const cost::Quadratic times = cost.stage_times(scheme, stage);
    if (std::find(stages_.begin(), stages_.end(), times) == stages_.end()) stages_.push_back(times);
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

int64_t SchemeCost::micro_batch_ns() const {
  int64_t slowest = 0;
  for (const cost::Quadratic& stage : stages_) slowest = std::max(slowest, stage.c_ns);
  return slowest;
}

}  // namespace sluice::plan
