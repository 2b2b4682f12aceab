#include "report/explain.h"

#include <algorithm>

#include "base/error.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::report {

namespace {

using schedule::Unit;
using strategy::MicroBatch;
using strategy::PipelinePlan;
using strategy::StepPlan;

int64_t length_of(const StepPlan& plan, const strategy::Piece& piece) {
  return plan.sequences[static_cast<size_t>(piece.sequence)].length_tokens;
}

// Forward through all stages, the input's gradient back, and the first stage's weight gradient.
int64_t path_ns(const Unit& unit) {
  int64_t path_ns = unit.backward_weight_ns.front();
  for (const int64_t ns : unit.forward_ns) path_ns += ns;
  for (const int64_t ns : unit.backward_input_ns) path_ns += ns;
  for (const int64_t ns : unit.transfer_ns) path_ns += 2 * ns;
  return path_ns;
}

// Fills busiest_stage and busy_ns.
void find_busiest_stage(const schedule::PipelineLoad& load, ExplainedPipeline& explained) {
  for (int stage = 0; stage < load.stages; ++stage) {
    const auto s = static_cast<size_t>(stage);
    std::vector<int64_t> busy_ns(static_cast<size_t>(load.lanes), 0);
    for (const Unit& unit : load.units) {
      const int64_t own_ns = unit.forward_ns[s] + unit.backward_input_ns[s] + unit.backward_weight_ns[s];
      for (int lane = 0; lane < unit.lanes; ++lane)
        busy_ns[static_cast<size_t>(unit.first_lane + lane)] += own_ns;
    }
    const int64_t most_ns = *std::ranges::max_element(busy_ns);
    if (most_ns <= explained.busy_ns) continue;
    explained.busiest_stage = stage;
    explained.busy_ns = most_ns;
  }
}

// Counts a ring's sequences once, its tokens on every lane.
void count_content(const StepPlan& plan, const PipelinePlan& pipeline, ExplainedPipeline& explained) {
  std::vector<bool> seen(plan.sequences.size(), false);
  for (const std::vector<MicroBatch>& lane : pipeline.lanes) {
    explained.micro_batches += static_cast<int64_t>(lane.size());
    for (const MicroBatch& micro_batch : lane) {
      explained.tokens += micro_batch.tokens();
      for (const strategy::Piece& piece : micro_batch.pieces) {
        if (!seen[static_cast<size_t>(piece.sequence)]) ++explained.sequences;
        seen[static_cast<size_t>(piece.sequence)] = true;
        explained.longest_tokens = std::max(explained.longest_tokens, length_of(plan, piece));
      }
    }
  }
}

bool holds(const StepPlan& plan, const MicroBatch& micro_batch, int64_t length) {
  return std::ranges::any_of(micro_batch.pieces,
                             [&](const strategy::Piece& piece) { return length_of(plan, piece) == length; });
}

// The path of the pipeline's longest sequence in its micro-batch.
int64_t longest_path_ns(const StepPlan& plan, const PipelinePlan& pipeline, const cost::CostModel& cost,
                        int64_t longest_tokens) {
  for (size_t lane = 0; lane < pipeline.lanes.size(); ++lane) {
    for (const MicroBatch& micro_batch : pipeline.lanes[lane]) {
      if (!holds(plan, micro_batch, longest_tokens)) continue;
      PipelinePlan alone = pipeline;
      for (std::vector<MicroBatch>& micro_batches : alone.lanes) {
        std::erase_if(micro_batches, [&](const MicroBatch& other) {
          return micro_batch.ring ? other.ring != micro_batch.ring : other != micro_batch;
        });
      }
      return path_ns(schedule::pipeline_units(alone, cost).front());
    }
  }
  return 0;
}

ExplainedPipeline explain_pipeline(const StepPlan& plan, const PipelinePlan& pipeline,
                                   const plan::Planner& planner) {
  const auto [first, last] = std::ranges::minmax_element(pipeline.pipeline.ranks);
  ExplainedPipeline explained{.scheme = to_text(pipeline.pipeline.scheme),
                              .first_rank = *first,
                              .last_rank = *last,
                              .stages = pipeline.pipeline.scheme.pp};
  count_content(plan, pipeline, explained);
  if (explained.sequences == 0) return explained;
  const schedule::PipelineLoad load =
      schedule::pipeline_load(pipeline, planner.cost(), planner.options().world_size);
  explained.end_ns = schedule::schedule_pipeline(load).makespan_ns;
  find_busiest_stage(load, explained);
  explained.longest_path_ns = longest_path_ns(plan, pipeline, planner.cost(), explained.longest_tokens);
  return explained;
}

ExplainedCandidate explain_candidate(const strategy::Strategy& candidate, const StepPlan& plan,
                                     int64_t longest_tokens, const plan::Planner& planner) {
  plan::PlannerOptions options = planner.options();
  options.candidates = {candidate};
  options.selection = plan::Selection::kBest;
  const plan::Planner alone(std::move(options), planner.cost());
  ExplainedCandidate explained{.strategy = to_text(candidate), .max_len_tokens = alone.max_len_tokens()};
  if (explained.max_len_tokens < longest_tokens) return explained;
  const StepPlan own = alone.plan(plan.step, plan.sequences);
  explained.estimated_ns = own.estimated_ns;
  explained.lower_bound_ns = own.lower_bound_ns;
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
                          .strategy = to_text(plan.strategy()),
                          .selection = planner.options().selection,
                          .estimated_ns = plan.estimated_ns,
                          .lower_bound_ns = plan.lower_bound_ns,
                          .gap_ppm = plan.gap_ppm(),
                          .bounded_by = plan.bounded_by};
  for (const strategy::Strategy& candidate : planner.options().candidates) {
    explanation.candidates.push_back(explain_candidate(candidate, plan, explanation.longest_tokens, planner));
  }
  std::ranges::stable_sort(explanation.candidates, is_faster);
  for (const PipelinePlan& pipeline : plan.pipelines)
    explanation.pipelines.push_back(explain_pipeline(plan, pipeline, planner));
  std::ranges::stable_sort(explanation.pipelines, std::ranges::greater{}, &ExplainedPipeline::end_ns);
  return explanation;
}

}  // namespace sluice::report
