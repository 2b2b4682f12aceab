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
  int64_t published_ns = 0;  // Eq. 1 of the slowest pipeline: what the published system chooses by
  int64_t makespan_ns = 0;   // of the schedule that will run
  bool proved = true;        // every packing is
};

// Every candidate of a planner by Algorithm 1 on Eq. 2 and Eq. 1 for every V; the one with the least estimate
// by Eq. 1 is taken, and timed like any plan by the schedule that will run. The stream of random numbers
// follows step and candidate.
std::shared_ptr<const plan::Method> paper(PaperOptions options = {});

// Nothing when a sequence fits no pipeline. InputError when a pipeline has more than one lane, which the
// published planner does not know. REQUIRES: `schemes` holds every scheme.
std::optional<PaperPlan> plan_by_paper(const strategy::Strategy& strategy, const plan::SchemeCosts& schemes,
                                       const cost::CostModel& cost, std::span<const int64_t> lengths,
                                       const PaperOptions& options);

}  // namespace sluice::published
