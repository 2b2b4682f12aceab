// The strong baseline: one homogeneous strategy for all batches, the best by enumeration, with first-fit
// decreasing for micro-batches: a well-tuned run without any of this library's ideas.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "cost/cost_model.h"
#include "plan/planner_options.h"
#include "strategy/step_plan.h"

namespace sluice::published {

// The assignment of micro-batches to pipelines. With kLeastWork, repeatedly, the one with the most work goes
// to the pipeline with the least. With kTurns, they go round robin in the order of first-fit decreasing, as
// in training frameworks, so that pipelines have equal numbers, give or take one.
enum class Dealing { kLeastWork, kTurns };

struct StaticStrategy {
  strategy::Scheme scheme;
  int pipelines = 1;
  int64_t micro_batch_tokens = 0;  // tokens per lane to which first-fit decreasing fills
  Dealing dealing = Dealing::kLeastWork;
  int64_t mean_ns = 0;  // over the sample batches
};

// "DP4 TP8 CP2", leaving out degrees of 1.
std::string to_text(const StaticStrategy& choice);

// Every lane of a pipeline holds its part of every sequence. First-fit decreasing makes micro-batches of
// `micro_batch_tokens` a lane (more only for a single sequence). The estimate is that of the schedule that
// would run. Sequences have the order of `lengths` and belong to no document.
strategy::StepPlan static_plan(const StaticStrategy& choice, std::span<const int64_t> lengths,
                               const cost::CostModel& cost, int world_size);

// The estimate of static_plan() without the plan. Every lane counts as the one that holds the most of each
// sequence, a token or two more per sequence than some lanes.
int64_t static_estimate_ns(const StaticStrategy& choice, std::span<const int64_t> lengths,
                           const cost::CostModel& cost, int world_size);

// The strategy with the least mean estimate over the sample batches, among all schemes that hold the context
// length, on as many pipelines as fit. Micro-batches are as long as the context, or as memory allows, or a
// half, quarter or eighth of that. InfeasibleError if no scheme holds the context.
StaticStrategy best_static(const plan::PlannerOptions& options, const cost::CostModel& cost,
                           Dealing dealing = Dealing::kLeastWork);

}  // namespace sluice::published
