// The strong baseline: one homogeneous strategy for all batches, the best by enumeration, with first-fit
// decreasing for micro-batches. What a well-tuned run without any of this library's ideas does.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "cost/cost_model.h"
#include "plan/proposal.h"
#include "strategy/step_plan.h"

namespace sluice::plan {

struct StaticStrategy {
  strategy::Scheme scheme;
  int pipelines = 1;
  int64_t micro_batch_tokens = 0;  // of a lane: what first-fit decreasing fills
  int64_t mean_ns = 0;             // over the sample batches
};

// Every lane of a pipeline holds its share of every sequence. First-fit decreasing makes micro-batches of
// `micro_batch_tokens` a lane (more only for a single sequence); the one with the most work goes to the
// pipeline with the least, again and again. The estimate is that of the schedule that would run.
strategy::StepPlan static_plan(const StaticStrategy& choice, std::span<const int64_t> lengths,
                               const cost::CostModel& cost, int world_size);

// The least mean time over the sample batches among all schemes that hold the context length, on as many
// pipelines as fit, with the longest micro-batches, half, a quarter and an eighth of them. InfeasibleError
// when no scheme holds the context.
StaticStrategy best_static(const ProposalOptions& options, const cost::CostModel& cost);

}  // namespace sluice::plan
