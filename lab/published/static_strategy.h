// The strong baseline: one homogeneous strategy for all batches, the best by enumeration, with first-fit
// decreasing for micro-batches. What a well-tuned run without any of this library's ideas does.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "cost/cost_model.h"
#include "plan/proposal.h"
#include "strategy/step_plan.h"

namespace sluice::published {

// Which pipeline gets which micro-batch. kLeastWork: the one with the most work goes to the pipeline with the
// least, again and again. kTurns: one after the other as first-fit decreasing made them, so that pipelines
// hold as many, give or take one: what training frameworks do.
enum class Dealing { kLeastWork, kTurns };

struct StaticStrategy {
  strategy::Scheme scheme;
  int pipelines = 1;
  int64_t micro_batch_tokens = 0;  // of a lane: what first-fit decreasing fills
  Dealing dealing = Dealing::kLeastWork;
  int64_t mean_ns = 0;  // over the sample batches
};

// "DP4 TP8 CP2", leaving out degrees of 1.
std::string to_text(const StaticStrategy& choice);

// Every lane of a pipeline holds its share of every sequence. First-fit decreasing makes micro-batches of
// `micro_batch_tokens` a lane (more only for a single sequence). The estimate is that of the schedule that
// would run. Sequences are those of `lengths`, in their order, of no document.
strategy::StepPlan static_plan(const StaticStrategy& choice, std::span<const int64_t> lengths,
                               const cost::CostModel& cost, int world_size);

// That estimate without the plan: every lane counts as one that holds the most of each sequence, which is a
// token or two a sequence more than some do.
int64_t static_estimate_ns(const StaticStrategy& choice, std::span<const int64_t> lengths,
                           const cost::CostModel& cost, int world_size);

// The least mean estimate over the sample batches among all schemes that hold the context length, on as many
// pipelines as fit, with micro-batches as long as the context, as long as memory allows, and half, a quarter
// and an eighth of that. InfeasibleError when no scheme holds the context.
StaticStrategy best_static(const plan::ProposalOptions& options, const cost::CostModel& cost,
                           Dealing dealing = Dealing::kLeastWork);

}  // namespace sluice::published
