#include "report/plan_table.h"

#include "base/text.h"

namespace sluice::report {

using base::text;

namespace {

std::string micro_batch_text(const strategy::MicroBatch& micro_batch) {
  std::string sizes = text(micro_batch.tokens(), " (", micro_batch.pieces.size(), ")");
  return micro_batch.ring ? text(sizes, " ring ", *micro_batch.ring) : sizes;
}

void add_pipeline(const strategy::PipelinePlan& pipeline, std::vector<std::string>& lines) {
  std::vector<std::string> ranks;
  for (const int rank : pipeline.pipeline.ranks) ranks.push_back(text(rank));
  lines.push_back(text("  pipeline ", strategy::to_text(pipeline.pipeline.scheme), " on ranks ",
                       base::join(ranks, ","), ", micro-batches of at most ", pipeline.max_len_tokens,
                       " tokens:"));
  for (size_t lane = 0; lane < pipeline.lanes.size(); ++lane) {
    std::vector<std::string> sizes;
    for (const strategy::MicroBatch& micro_batch : pipeline.lanes[lane])
      sizes.push_back(micro_batch_text(micro_batch));
    const std::string list = sizes.empty() ? "none" : base::join(sizes, ", ");
    lines.push_back(text("    lane ", lane, ", tokens (sequences): ", list));
  }
}

}  // namespace

std::string plan_table(const strategy::StepPlan& plan, int64_t predicted_ns) {
  std::vector<std::string> lines;
  lines.push_back(
      text("step ", plan.step, ": ",
           base::human_count(static_cast<int64_t>(plan.sequences.size()), "sequence", "sequences"), ", ",
           base::human_count(plan.tokens(), "token", "tokens"), ", ",
           base::human_count(plan.targets(), "target", "targets")));
  for (const strategy::CandidateEstimate& candidate : plan.candidates) {
    lines.push_back(
        text("  candidate ", candidate.strategy, ": ", base::human_duration(candidate.estimated_ns)));
  }
  lines.push_back(text("strategy ", strategy::to_text(plan.strategy()), ", predicted ",
                       base::human_duration(predicted_ns > 0 ? predicted_ns : plan.estimated_ns)));
  if (plan.lower_bound_ns > 0) {
    lines.push_back(text("  no plan of the candidates takes less than ",
                         base::human_duration(plan.lower_bound_ns), ": within ",
                         base::human_percent(static_cast<double>(plan.gap_ppm()) / 1e6), " of the best"));
  }
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) add_pipeline(pipeline, lines);
  return base::join(lines, "\n");
}

}  // namespace sluice::report
