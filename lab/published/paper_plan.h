// The published assignment of one candidate strategy: dispatch, then pack each pipeline.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "plan/planner.h"
#include "published/dispatch.h"
#include "published/paper_pack.h"
#include "strategy/step_plan.h"

namespace sluice::published {

// kGreedy: Algorithm 1. kIdeal: Eq. 3, from Algorithm 1's best.
enum class DispatchRule { kGreedy, kIdeal };

struct PaperOptions {
  DispatchOptions dispatch;
  DispatchRule dispatch_rule = DispatchRule::kGreedy;
  int64_t ideal_node_budget = 1'000'000;
  PaperPackOptions pack;
};

struct PaperPlan {
  std::vector<strategy::PipelinePlan> pipelines;
  int64_t published_ns = 0;  // Eq. 1 of the slowest pipeline: the criterion of the published system
  int64_t makespan_ns = 0;   // under the schedule that will run
  bool proved = true;        // true if every packing is proved
};

// Plans every candidate of a planner by Algorithm 1 with Eq. 2, and by Eq. 1 for every V. The candidate with
// the least estimate by Eq. 1 is chosen, and timed like any plan by the schedule that will run. Step and
// candidate determine the random number stream.
std::shared_ptr<const plan::Method> paper(PaperOptions options = {});

// Nullopt if a sequence fits no pipeline. InputError if a pipeline has more than one lane, which the
// published planner does not know. REQUIRES: `schemes` holds every scheme.
std::optional<PaperPlan> plan_by_paper(const strategy::Strategy& strategy, const plan::SchemeCosts& schemes,
                                       const cost::CostModel& cost, std::span<const int64_t> lengths,
                                       const PaperOptions& options);

}  // namespace sluice::published
