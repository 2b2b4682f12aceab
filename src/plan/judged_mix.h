// The time of the sample batches on a mix of pipelines. Planning every batch on
// every mix would take too long. So fluid estimates (plan/fluid.h) judge a mix,
// corrected by the ratio of plan to estimate on the few batches that were planned.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/never.h"
#include "plan/fluid.h"
#include "plan/planner_options.h"
#include "plan/search.h"

namespace sluice::plan {

// Ranks, their schemes and sample batches, in place of those in the options. The
// options and the cost model must outlive this, and this must outlive the mixes judged.
struct JudgingInputs {
  JudgingInputs(const PlannerOptions& given, int world_size, std::vector<SchemeCost> usable,
                const std::vector<std::vector<int64_t>>& sample_batches, const cost::CostModel& model);

  // A lower bound on the time of steps beside their schedules under a mix.
  int64_t min_step_overhead_ns(const Mix& mix) const;

  const PlannerOptions& options;
  int ranks;
  const cost::CostModel& cost;
  Seeds seeds;  // of quick plans
  bool coarse;  // losing mixes are planned on fewer batches and their graphs are not timed
  std::vector<SchemeCost> schemes;
  SchemeCosts by_scheme;
  std::vector<SortedBatch> batches;
  FluidTimes fluid;
};

// The sums of planned schedules and of fluid estimates, over the batches that
// have both, and the mean time that pull, push and update add to these schedules.
struct PlannedPart {
  int64_t planned_ns = 0;
  int64_t fluid_ns = 0;
  int64_t step_overhead_ns = 0;

  bool known() const { return fluid_ns > 0; }
  // planned() converts an estimate to a step's time: times the ratio of the sums, plus the step
  // overhead. estimate() is its inverse. Both return their argument while nothing is known.
  int64_t planned(int64_t estimate_ns) const;
  int64_t estimate(int64_t time_ns) const;
  // Compares the ratios. REQUIRES: both are known.
  bool operator<(const PlannedPart& other) const;
};

// The times from which on a mix loses, where comparisons are coarse. Otherwise nothing loses.
struct LosingTimes {
  std::vector<int64_t> steps_ns;    // by batch; empty: no step loses
  int64_t total_ns = base::kNever;  // summed over batches, with those already chosen

  int64_t step_ns(size_t batch) const { return batch < steps_ns.size() ? steps_ns[batch] : base::kNever; }
};

class JudgedMix {
 public:
  JudgedMix(Mix mix, const JudgingInputs& inputs);

  const Mix& mix() const { return mix_; }
  int64_t max_len_tokens() const { return max_len_tokens_; }
  bool holds(size_t batch) const { return fluid_ns_[batch] != cost::kLongestNs; }
  // The time of a step. If the batch was planned on this mix: the plan's. Otherwise its
  // estimate, corrected by this mix's own plans (by `others` while it has none) and
  // raised to the proved bound. cost::kLongestNs if the mix does not hold the batch.
  int64_t time_ns(size_t batch, const PlannedPart& others) const;
  // The sum over batches of the least time if this mix joins.
  // `best_ns`: by batch, the least time on the mixes already chosen.
  int64_t total_with(const std::vector<int64_t>& best_ns, const PlannedPart& others) const;

  // Plans a few of the batches on which this mix seems to take less than `best_ns`, except
  // those on which it is proved not to. Stops once its plans say that it loses in total.
  void probe(const std::vector<int64_t>& best_ns, const PlannedPart& others, const LosingTimes& losing);
  // Plans a few batches that the mix holds, whatever estimates say, except those proved to take
  // `hopeless_ns` or longer, until it loses on one. The mix counts as probed afterwards, unless
  // every batch is excepted.
  void probe_held(const std::vector<int64_t>& hopeless_ns, const LosingTimes& losing);
  // Plans, one by one, the batches on which the mix may win if estimates err as much as on any
  // planned one. Stops once total_with, corrected by these plans, is no longer below `limit_ns`.
  void plan_winnable(const std::vector<int64_t>& best_ns, const PlannedPart& others, int64_t limit_ns);
  bool probed() const { return probed_; }
  int64_t planned_batches() const { return std::ranges::count(planned_, true); }
  // cost::kLongestNs where the batch was not planned.
  int64_t planned_ns(size_t batch) const { return planned_[batch] ? least_ns_[batch] : cost::kLongestNs; }
  const PlannedPart& planned_part() const { return part_; }

 private:
  // The time of an unplanned step if its estimate errs as much as those in `as`.
  int64_t unplanned_ns(size_t batch, const PlannedPart& as) const;
  // The mix's own part, or others' while it has no plans.
  const PlannedPart& own_or(const PlannedPart& others) const { return part_.known() ? part_ : others; }
  // The batches on which the mix takes less than `best_ns` by
  // that correction, without those planned or proved not to win.
  std::vector<size_t> winnable(const std::vector<int64_t>& best_ns, const PlannedPart& as) const;
  // A step of `losing_ns` or longer counts with the least that it takes beside its schedule.
  void plan(size_t batch, int64_t limit_ns, int64_t losing_ns = base::kNever);
  QuickStep planned_step(size_t batch, int64_t losing_ns, CandidateSearch& search) const;
  int64_t beside_ns(size_t batch, const std::vector<PackedPipeline>& packed) const;

  Mix mix_;
  strategy::Strategy strategy_;
  int64_t max_len_tokens_ = 0;
  const JudgingInputs* inputs_;
  std::vector<int64_t> fluid_ns_;
  std::optional<int64_t> least_beside_ns_;  // once a batch was planned
  std::vector<int64_t> least_ns_;           // a step's time: about what is proved, or as planned
  std::vector<bool> planned_;
  PlannedPart part_;
  PlannedPart least_part_;         // from the batch whose plan took least of its estimate
  int64_t planned_beside_ns_ = 0;  // summed over all planned batches
  bool probed_ = false;
};

}  // namespace sluice::plan
