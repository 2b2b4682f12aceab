// The proved optimal plan of a small batch: the reference for other methods.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "plan/planner.h"
#include "plan/scheme_cost.h"
#include "strategy/step_plan.h"

namespace sluice::exact {

constexpr int kMostExactSequences = 12;
constexpr int kMostStagedExactSequences = 7;  // if some pipeline has pp > 1
constexpr int kMostLanedExactSequences = 5;   // if some pipeline has cp > 1
constexpr int kMostExactLanes = 4;

struct ExactPlan {
  std::vector<strategy::PipelinePlan> pipelines;
  int64_t makespan_ns = 0;
};

// The least makespan over all dispatches, packings and orders of injection, under the schedule that will run.
// First come the optima of every subset of the sequences on every kind of pipeline. With one stage and lane,
// these are sums of lane parts, computed from smaller subsets. Otherwise every order of every partition into
// micro-batches, each on every run of lanes, is scheduled. A subset is dropped once it keeps some stage busy
// as long as a known plan (CandidateSearch) takes; equal lengths are interchangeable. Then subsets go to
// pipelines, one pipeline after the other. Lanes of a micro-batch may have whole sequences beside shared
// ones. Nullopt if a sequence fits no pipeline. InputError naming the limits if there are more sequences or
// lanes. REQUIRES: `schemes` holds every scheme of the strategy.
std::optional<ExactPlan> exact_plan(const strategy::Strategy& strategy, const plan::SchemeCosts& schemes,
                                    const cost::CostModel& cost, std::span<const int64_t> lengths);

// The proved best of every candidate.
std::shared_ptr<const plan::Method> method();

}  // namespace sluice::exact
