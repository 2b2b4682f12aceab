// The best plan of a small batch, proved: what other methods are measured against.
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
constexpr int kMostStagedExactSequences = 7;  // where some pipeline has pp > 1
constexpr int kMostLanedExactSequences = 5;   // where some pipeline has cp > 1
constexpr int kMostExactLanes = 4;

struct ExactPlan {
  std::vector<strategy::PipelinePlan> pipelines;
  int64_t makespan_ns = 0;
};

// The least makespan over all dispatches, packings and orders of injection, under the schedule that will run.
// First the best of every subset of the sequences on every kind of pipeline: with one stage and lane the sum
// of its lane parts, so by subsets of subsets; else every order of every partition into micro-batches, each
// on every run of lanes, scheduled. A subset that keeps some stage busy for as long as a plan already known
// (by CandidateSearch) is not continued; equal lengths are told apart nowhere. Then subsets to pipelines, one
// pipeline after the other. Micro-batches of several lanes have no whole sequences beside what they share.
// Nothing when a sequence fits no pipeline. InputError naming the limits when there are more sequences or
// lanes. REQUIRES: `schemes` holds every scheme of the strategy.
std::optional<ExactPlan> exact_plan(const strategy::Strategy& strategy, const plan::SchemeCosts& schemes,
                                    const cost::CostModel& cost, std::span<const int64_t> lengths);

// The proved best of every candidate.
std::shared_ptr<const plan::Method> method();

}  // namespace sluice::exact
