// What batches take on a mix: planned where it matters, elsewhere estimated from what planning told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "plan/fluid.h"
#include "plan/search.h"

namespace sluice::plan {

// What mixes are judged with. What it is made from must outlive it, and it all that is judged with it.
struct JudgingInputs {
  JudgingInputs(std::vector<SchemeCost> usable, const std::vector<std::vector<int64_t>>& sample_batches,
                int world_size, const cost::CostModel& model);

  const cost::CostModel& cost;
  int ranks = 1;
  std::vector<SchemeCost> schemes;
  std::map<strategy::Scheme, SchemeCost> by_scheme;
  std::vector<SortedBatch> batches;
  FluidTimes fluid;
};

// What plans took against estimates of the same.
struct PlannedPart {
  int64_t planned_ns = 0;
  int64_t fluid_ns = 0;

  bool known() const { return fluid_ns > 0; }
  // The time of a plan by its estimate, and the other way; the same while nothing is known.
  int64_t planned(int64_t estimate_ns) const;
  int64_t estimate(int64_t time_ns) const;
  // REQUIRES: both are known.
  bool operator<(const PlannedPart& other) const;
};

class JudgedMix {
 public:
  JudgedMix(Mix mix, const JudgingInputs& inputs);

  const Mix& mix() const { return mix_; }
  const strategy::Strategy& strategy() const { return strategy_; }
  int64_t max_len_tokens() const { return max_len_tokens_; }
  bool holds(size_t batch) const { return fluid_ns_[batch] != FluidTimes::kNever; }
  // Planned; else the estimate as this mix's plans correct it, and while there are none as `others` do, but
  // not less than what is proved. FluidTimes::kNever when it does not hold the batch.
  int64_t time_ns(size_t batch, const PlannedPart& others) const;
  // The sum of each batch's least time when this joins those with times `best_ns`.
  int64_t total_with(const std::vector<int64_t>& best_ns, const PlannedPart& others) const;

  // Plans some of the batches on which it seems to take less than `best_ns`. Where it is proved that it takes
  // no less nothing is planned.
  void probe(const std::vector<int64_t>& best_ns, const PlannedPart& others);
  // The same until none is left, or, with what that tells, total_with is no longer below `limit_ns`.
  void plan_winnable(const std::vector<int64_t>& best_ns, const PlannedPart& others, int64_t limit_ns);
  bool probed() const { return probed_; }
  const PlannedPart& planned_part() const { return part_; }

 private:
  // Batches that are not planned, nor proved to take longer, on which it seems to take less.
  std::vector<size_t> winnable(const std::vector<int64_t>& best_ns, const PlannedPart& others) const;
  void plan(size_t batch, int64_t limit_ns);

  Mix mix_;
  strategy::Strategy strategy_;
  int64_t max_len_tokens_ = 0;
  const JudgingInputs* inputs_;
  std::vector<int64_t> fluid_ns_;
  std::vector<int64_t> least_ns_;  // proved, or planned
  std::vector<bool> planned_;
  PlannedPart part_;
  bool probed_ = false;
};

}  // namespace sluice::plan
