#include "report/plan_table.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/text.h"
#include "strategy/readable.h"

namespace sluice::report {

using base::human_count;
using base::text;

namespace {

using Rows = std::vector<std::vector<std::string>>;

constexpr size_t kMostMicroBatches = 8;  // a row names so many one by one

// "0-3,8".
std::string ranks_text(std::span<const int> ranks) {
  std::vector<std::string> runs;
  for (size_t begin = 0; begin < ranks.size();) {
    size_t end = begin + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    runs.push_back(end - begin == 1 ? text(ranks[begin]) : text(ranks[begin], "-", ranks[end - 1]));
    begin = end;
  }
  return base::join(runs, ",");
}

std::string micro_batch_text(const strategy::PipelineMicroBatch& micro_batch,
                             const strategy::LanePart& lane_part) {
  std::string sizes = text(human_count(lane_part.tokens()), " (", lane_part.pieces.size(), ")");
  return micro_batch.lanes > 1
             ? text(sizes, " ", name_of(micro_batch.exchange), " of micro-batch ", micro_batch.number)
             : sizes;
}

std::string micro_batches_text(const strategy::PipelinePlan& plan,
                               const std::vector<strategy::LanePart>& lane_parts) {
  if (lane_parts.empty()) return "none";
  if (lane_parts.size() > kMostMicroBatches) {
    const auto [least, most] =
        std::ranges::minmax(lane_parts, {}, [](const auto& each) { return each.tokens(); });
    return text(human_count(static_cast<int64_t>(lane_parts.size())), " of ", human_count(least.tokens()),
                " to ", human_count(most.tokens()));
  }
  std::vector<std::string> sizes;
  for (const strategy::LanePart& lane_part : lane_parts)
    sizes.push_back(
        micro_batch_text(plan.micro_batches[static_cast<size_t>(lane_part.micro_batch)], lane_part));
  return base::join(sizes, ", ");
}

// A row for each lane; the first one also has what the lanes have in common.
void add_pipeline(const strategy::PipelinePlan& plan, Rows& rows) {
  std::vector<std::string> common = {text("  ", readable(plan.pipeline.scheme)),
                                     ranks_text(plan.pipeline.ranks), human_count(plan.max_len_tokens)};
  const std::vector<std::vector<strategy::LanePart>> lanes = strategy::lane_parts(plan);
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    int64_t tokens = 0;
    for (const strategy::LanePart& lane_part : lanes[lane]) tokens += lane_part.tokens();
    std::vector<std::string> row = std::exchange(common, std::vector<std::string>(common.size()));
    row.insert(row.end(), {text(lane), human_count(tokens), micro_batches_text(plan, lanes[lane])});
    rows.push_back(std::move(row));
  }
}

std::string head(const strategy::StepPlan& plan, int64_t predicted_ns) {
  std::string lines =
      text("step ", plan.step, ": ",
           human_count(static_cast<int64_t>(plan.sequences.size()), "sequence", "sequences"), ", ",
           human_count(plan.tokens(), "token", "tokens"), ", ",
           human_count(plan.targets(), "target", "targets"), "\nstrategy ", readable(plan.strategy()),
           ", predicted ", base::human_duration(predicted_ns > 0 ? predicted_ns : plan.estimated_ns), "\n");
  if (plan.lower_bound_ns == 0) return lines;
  return text(lines, "  schedule ", base::human_duration(plan.estimated_ns), ", within ",
              base::human_percent(static_cast<double>(plan.gap_ppm()) / 1e6),
              " of the best: no plan of these candidates takes less than ",
              base::human_duration(plan.lower_bound_ns), "\n");
}

// A line for each kind of device that computes in fewer bits.
std::string narrow_lines(const strategy::StepPlan& plan) {
  std::string lines;
  std::vector<strategy::Device> told;
  for (const strategy::PipelinePlan& each : plan.pipelines) {
    const strategy::Device& device = each.pipeline.device;
    if (!device.low_precision || std::ranges::find(told, device) != told.end()) continue;
    told.push_back(device);
    std::vector<int> ranks;
    for (const strategy::PipelinePlan& other : plan.pipelines) {
      if (other.pipeline.device == device)
        ranks.insert(ranks.end(), other.pipeline.ranks.begin(), other.pipeline.ranks.end());
    }
    lines += text("  ", name_of(device.low_precision->format), " products in layers ",
                  ranks_text(device.low_precision->layers), " of ranks ", ranks_text(ranks), "\n");
  }
  return lines.empty() ? lines : text("\n", lines);
}

}  // namespace

std::string plan_table(const strategy::StepPlan& plan, int64_t predicted_ns) {
  Rows pipelines = {
      {"  pipeline", "ranks", "max sequence length", "lane", "tokens", "lane parts: tokens (pieces)"}};
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) add_pipeline(pipeline, pipelines);
  std::string table =
      text(head(plan, predicted_ns), "\n", base::table_text(pipelines, "llrrrl"), narrow_lines(plan));
  if (plan.candidates.size() > 1) {
    Rows candidates = {{"  estimated", "candidate; the estimate of one that cannot win may be a bound"}};
    for (const strategy::CandidateEstimate& candidate : plan.candidates)
      candidates.push_back(
          {base::human_duration(candidate.estimated_ns), strategy::readable_text(candidate.strategy)});
    table += text("\n", base::table_text(candidates, "rl"));
  }
  if (table.ends_with('\n')) table.pop_back();
  return table;
}

}  // namespace sluice::report
