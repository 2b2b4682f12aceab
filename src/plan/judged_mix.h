// How long the sample batches take on a mix of pipelines. Planning all of them on all mixes would take too
// long, so a mix is judged by fluid estimates (plan/fluid.h), which are corrected by the ratio of plan to
// estimate on the few batches that were planned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/fluid.h"
#include "plan/proposal.h"
#include "plan/search.h"

namespace sluice::plan {

// Ranks, their schemes and sample batches, in place of the options'. Options and cost model must outlive it,
// and it the mixes judged.
struct JudgingInputs {
  JudgingInputs(const ProposalOptions& given, int world_size, std::vector<SchemeCost> usable,
                const std::vector<std::vector<int64_t>>& sample_batches, const cost::CostModel& model);

  // What steps take at least beside their schedules under a mix.
  int64_t min_step_overhead_ns(const Mix& mix) const;

  const ProposalOptions& options;
  int ranks;
  const cost::CostModel& cost;
  std::vector<SchemeCost> schemes;
  SchemeCosts by_scheme;
  std::vector<SortedBatch> batches;
  FluidTimes fluid;
};

// The sums of planned schedules and of fluid estimates, over the batches for which there are both, and what
// pull, push and update add to these schedules in the mean.
struct PlannedPart {
  int64_t planned_ns = 0;
  int64_t fluid_ns = 0;
  int64_t step_overhead_ns = 0;

  bool known() const { return fluid_ns > 0; }
  // The step that an estimate says: times the ratio of the sums, and what is beside it. And back. Unchanged
  // while nothing is known.
  int64_t planned(int64_t estimate_ns) const;
  int64_t estimate(int64_t time_ns) const;
  // By the ratio. REQUIRES: both are known.
  bool operator<(const PlannedPart& other) const;
};

class JudgedMix {
 public:
  JudgedMix(Mix mix, const JudgingInputs& inputs);

  const Mix& mix() const { return mix_; }
  int64_t max_len_tokens() const { return max_len_tokens_; }
  bool holds(size_t batch) const { return fluid_ns_[batch] != FluidTimes::kNever; }
  // A step's time: the plan's, where the batch was planned on this mix. Otherwise its estimate, corrected by
  // this mix's own plans, or by `others` while it has none, and raised to what is proved. FluidTimes::kNever
  // when the mix does not hold the batch.
  int64_t time_ns(size_t batch, const PlannedPart& others) const;
  // `best_ns`: by batch, the least time on the mixes already chosen. The sum of what they become with this
  // mix.
  int64_t total_with(const std::vector<int64_t>& best_ns, const PlannedPart& others) const;

  // Plans a few of the batches on which this mix seems to take less than `best_ns`, but none on which it is
  // proved to take no less.
  void probe(const std::vector<int64_t>& best_ns, const PlannedPart& others);
  // Plans a few of those that it holds whatever estimates say, but none on which it is proved to take so long.
  // Probed then, unless all of them are.
  void probe_held(const std::vector<int64_t>& hopeless_ns);
  // Plans those on which it may take less, as far as estimates were wrong about any, one after the other,
  // until total_with, corrected by these plans, is no longer below `limit_ns`.
  void plan_winnable(const std::vector<int64_t>& best_ns, const PlannedPart& others, int64_t limit_ns);
  bool probed() const { return probed_; }
  // FluidTimes::kNever where the batch was not planned.
  int64_t planned_ns(size_t batch) const { return planned_[batch] ? least_ns_[batch] : FluidTimes::kNever; }
  const PlannedPart& planned_part() const { return part_; }

 private:
  // A step that was not planned, if estimates are as wrong about it as about that part.
  int64_t unplanned_ns(size_t batch, const PlannedPart& as) const;
  // Its own part, or others' while it has none.
  const PlannedPart& own_or(const PlannedPart& others) const { return part_.known() ? part_ : others; }
  // The batches on which it would then take less than `best_ns`, but for those planned or proved to take no
  // less.
  std::vector<size_t> winnable(const std::vector<int64_t>& best_ns, const PlannedPart& as) const;
  void plan(size_t batch, int64_t limit_ns);
  int64_t beside_ns(size_t batch, const std::vector<PackedPipeline>& packed) const;

  Mix mix_;
  strategy::Strategy strategy_;
  int64_t max_len_tokens_ = 0;
  const JudgingInputs* inputs_;
  std::vector<int64_t> fluid_ns_;
  int64_t least_beside_ns_ = 0;
  std::vector<int64_t> least_ns_;  // of the step: about what is proved, or planned
  std::vector<bool> planned_;
  PlannedPart part_;
  PlannedPart least_part_;         // of the batch that took least of its estimate
  int64_t planned_beside_ns_ = 0;  // of all planned batches
  bool probed_ = false;
};

}  // namespace sluice::plan
