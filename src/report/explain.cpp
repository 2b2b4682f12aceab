#include "report/explain.h"

#include <algorithm>

#include "base/error.h"
#include "schedule/pipeline_schedule.h"
#include "strategy/pass.h"
#include "strategy/readable.h"

namespace sluice::report {

namespace {

using schedule::TimedMicroBatch;
using strategy::PipelinePlan;
using strategy::StepPlan;

// Forward through all stages, input gradients back to the first stage with a backward, its weight gradient.
int64_t path_ns(const TimedMicroBatch& micro_batch) {
  const auto first = static_cast<size_t>(micro_batch.first_backward_stage);
  int64_t path_ns = first < micro_batch.forward_ns.size() ? micro_batch.backward_weight_ns[first] : 0;
  for (const int64_t ns : micro_batch.forward_ns) path_ns += ns;
  for (const int64_t ns : micro_batch.backward_input_ns) path_ns += ns;
  for (size_t boundary = 0; boundary < micro_batch.transfer_ns.size(); ++boundary)
    path_ns += (boundary < first ? 1 : 2) * micro_batch.transfer_ns[boundary];
  return path_ns;
}

// Fills busiest_stage and busy_ns.
void find_busiest_stage(const schedule::PipelineLoad& load, ExplainedPipeline& explained) {
  for (int stage = 0; stage < load.stages; ++stage) {
    const auto s = static_cast<size_t>(stage);
    std::vector<int64_t> busy_ns(static_cast<size_t>(load.lanes), 0);
    for (const TimedMicroBatch& micro_batch : load.micro_batches) {
      const int64_t own_ns =
          micro_batch.forward_ns[s] + micro_batch.backward_input_ns[s] + micro_batch.backward_weight_ns[s];
      for (int lane = 0; lane < micro_batch.lanes; ++lane)
        busy_ns[static_cast<size_t>(micro_batch.first_lane + lane)] += own_ns;
    }
    const int64_t most_ns = *std::ranges::max_element(busy_ns);
    if (most_ns <= explained.busy_ns) continue;
    explained.busiest_stage = stage;
    explained.busy_ns = most_ns;
  }
}

// Calls visit(sequence) for each sequence of a micro-batch.
template <typename Visit>
void for_each_sequence(const strategy::PipelineMicroBatch& micro_batch, const Visit& visit) {
  std::ranges::for_each(micro_batch.sequences, visit);
  for (const auto& lane : micro_batch.own) std::ranges::for_each(lane, visit);
}

void count_content(const PipelinePlan& pipeline, ExplainedPipeline& explained) {
  for (const strategy::PipelineMicroBatch& micro_batch : pipeline.micro_batches) {
    explained.lane_parts += micro_batch.lanes;
    for_each_sequence(micro_batch, [&](const strategy::MicroBatchSequence& sequence) {
      ++explained.sequences;
      explained.tokens += sequence.length_tokens;
      explained.longest_tokens = std::max(explained.longest_tokens, sequence.length_tokens);
    });
  }
}

// The path of the pipeline's first micro-batch that holds a sequence of `longest_tokens`.
int64_t longest_path_ns(const PipelinePlan& pipeline, const cost::CostModel& cost, int64_t longest_tokens) {
  for (const strategy::PipelineMicroBatch& micro_batch : pipeline.micro_batches) {
    bool holds = false;
    for_each_sequence(micro_batch, [&](const strategy::MicroBatchSequence& sequence) {
      holds = holds || sequence.length_tokens == longest_tokens;
    });
    if (!holds) continue;
    PipelinePlan alone = pipeline;
    alone.micro_batches = {micro_batch};
    strategy::assign_passes(alone);
    return path_ns(schedule::timed_micro_batches(alone, cost).front());
  }
  return 0;
}

ExplainedPipeline explain_pipeline(const PipelinePlan& pipeline, const plan::Planner& planner) {
  const auto [first, last] = std::ranges::minmax_element(pipeline.pipeline.ranks);
  ExplainedPipeline explained{.scheme = readable(pipeline.pipeline.scheme),
                              .first_rank = *first,
                              .last_rank = *last,
                              .stages = pipeline.pipeline.scheme.pp};
  count_content(pipeline, explained);
  if (explained.sequences == 0) return explained;
  const schedule::PipelineLoad load =
      schedule::pipeline_load(pipeline, planner.cost(), planner.options().world_size);
  explained.end_ns = schedule::schedule_pipeline(load).makespan_ns;
  find_busiest_stage(load, explained);
  explained.longest_path_ns = longest_path_ns(pipeline, planner.cost(), explained.longest_tokens);
  return explained;
}

// The planner's policies up to the first under which some candidate holds the sequence: the planner takes
// none of the others.
std::vector<strategy::MemoryPolicy> policies_for(int64_t longest_tokens, const plan::Planner& planner) {
  std::vector<strategy::MemoryPolicy> policies;
  for (const strategy::MemoryPolicy& policy : planner.options().policies) {
    policies.push_back(policy);
    plan::PlannerOptions options = planner.options();
    options.policies = policies;
    if (plan::Planner(std::move(options), planner.cost()).max_len_tokens() >= longest_tokens) break;
  }
  return policies;
}

// The step's time under the candidate alone: the schedule with all that the planner counts beside it.
ExplainedCandidate explain_candidate(const strategy::Strategy& candidate, const StepPlan& plan,
                                     int64_t longest_tokens, plan::PlannerOptions options,
                                     const cost::CostModel& cost) {
  options.candidates = {candidate};
  options.selection = plan::Selection::kBest;
  const plan::Planner alone(std::move(options), cost);
  ExplainedCandidate explained{.strategy = readable(candidate), .max_len_tokens = alone.max_len_tokens()};
  if (explained.max_len_tokens < longest_tokens) return explained;
  const StepPlan own = alone.plan(plan.step, plan.sequences);
  explained.estimated_ns = own.estimated_ns + alone.step_overhead_ns(own);
  if (own.lower_bound_ns > 0) explained.lower_bound_ns = own.lower_bound_ns + alone.min_step_overhead_ns(0);
  return explained;
}

bool is_faster(const ExplainedCandidate& a, const ExplainedCandidate& b) {
  if (!a.estimated_ns || !b.estimated_ns) return a.estimated_ns.has_value() && !b.estimated_ns.has_value();
  return *a.estimated_ns < *b.estimated_ns;
}

}  // namespace

Explanation explain(const StepPlan& plan, const plan::Planner& planner) {
  SLUICE_ASSERT(!plan.sequences.empty(), "a plan without sequences");
  std::vector<int64_t> lengths;
  for (const strategy::Sequence& sequence : plan.sequences) lengths.push_back(sequence.length_tokens);
  std::ranges::sort(lengths);
  Explanation explanation{.step = plan.step,
                          .sequences = static_cast<int64_t>(lengths.size()),
                          .tokens = plan.tokens(),
                          .median_tokens = lengths[(lengths.size() - 1) / 2],
                          .longest_tokens = lengths.back(),
                          .strategy = readable(plan.strategy()),
                          .selection = planner.options().selection,
                          .schedule_ns = plan.estimated_ns,
                          .estimated_ns = plan.estimated_ns + planner.step_overhead_ns(plan),
                          .lower_bound_ns = plan.lower_bound_ns,
                          .gap_ppm = plan.gap_ppm(),
                          .bounded_by = plan.bounded_by};
  for (const strategy::Sequence& sequence : plan.sequences)
    explanation.branches += std::ssize(sequence.branches);
  plan::PlannerOptions options = planner.options();
  options.policies = policies_for(explanation.longest_tokens, planner);
  for (const strategy::Strategy& candidate : planner.options().candidates) {
    explanation.candidates.push_back(
        explain_candidate(candidate, plan, explanation.longest_tokens, options, planner.cost()));
  }
  std::ranges::stable_sort(explanation.candidates, is_faster);
  for (const PipelinePlan& pipeline : plan.pipelines)
    explanation.pipelines.push_back(explain_pipeline(pipeline, planner));
  std::ranges::stable_sort(explanation.pipelines, std::ranges::greater{}, &ExplainedPipeline::end_ns);
  explanation.cuts = explain_cuts(plan, planner.cost());
  explanation.compression = explain_compression(plan, planner);
  return explanation;
}

}  // namespace sluice::report
