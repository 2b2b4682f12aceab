#include "plan/static_strategy.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "plan/mix.h"
#include "plan/pack.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::plan {
namespace {

constexpr int kHalvings = 3;  // of the longest micro-batch

// What a lane holds of a sequence that is cut into two chunks a lane.
int64_t lane_tokens(int64_t length, int cp) {
  return cp == 1 ? length : 2 * ((length + 2 * cp - 1) / (2 * cp));
}

std::vector<PackItem> items_of(std::span<const int64_t> lengths, const cost::CostModel& cost,
                               const strategy::Scheme& scheme) {
  const cost::Quadratic times = cost.stage_times(scheme, 0);
  std::vector<PackItem> items;
  for (size_t s = 0; s < lengths.size(); ++s) {
    const int64_t tokens = lane_tokens(lengths[s], scheme.cp);
    items.push_back({.sequence = static_cast<int>(s),
                     .tokens = tokens,
                     .work_ns = times.of_work(cost::Work::of_lane(tokens, lengths[s], scheme.cp))});
  }
  return items;
}

// Adds a micro-batch to every lane: whole sequences on one lane, or a ring over all.
void append(strategy::PipelinePlan& to, const std::vector<int>& bin,
            const std::vector<strategy::Sequence>& sequences) {
  const int cp = to.pipeline.scheme.cp;
  const std::vector<int32_t> shared(bin.begin(), bin.end());
  if (cp > 1) {
    const int ring = static_cast<int>(to.lanes.front().size());
    std::vector<strategy::MicroBatch> tied = strategy::ring_micro_batches(sequences, shared, cp, ring);
    for (size_t lane = 0; lane < to.lanes.size(); ++lane) to.lanes[lane].push_back(std::move(tied[lane]));
    return;
  }
  strategy::MicroBatch micro_batch;
  for (const int32_t s : shared) {
    micro_batch.pieces.push_back({s, 0, sequences[static_cast<size_t>(s)].length_tokens});
  }
  to.lanes.front().push_back(std::move(micro_batch));
}

}  // namespace

strategy::StepPlan static_plan(const StaticStrategy& choice, std::span<const int64_t> lengths,
                               const cost::CostModel& cost, int world_size) {
  const std::string name = base::text(choice.pipelines, "x", to_text(choice.scheme));
  const strategy::Strategy strategy = strategy::parse_strategy(name, world_size);
  strategy::StepPlan plan;
  for (const int64_t length : lengths) plan.sequences.push_back({.length_tokens = length});
  for (const strategy::Pipeline& pipeline : strategy.pipelines) {
    plan.pipelines.push_back(
        {.pipeline = pipeline,
         .max_len_tokens = cost.max_len_tokens(choice.scheme, world_size),
         .lanes = std::vector<std::vector<strategy::MicroBatch>>(static_cast<size_t>(choice.scheme.cp))});
  }
  const std::vector<PackItem> items = items_of(lengths, cost, choice.scheme);
  int64_t capacity = choice.micro_batch_tokens;
  for (const PackItem& item : items) capacity = std::max(capacity, item.tokens);

  std::vector<std::pair<int64_t, std::vector<int>>> bins;
  for (std::vector<int>& bin : first_fit_decreasing(items, capacity)) {
    int64_t work_ns = 0;
    for (const int item : bin) work_ns += items[static_cast<size_t>(item)].work_ns;
    bins.emplace_back(work_ns, std::move(bin));
  }
  std::stable_sort(bins.begin(), bins.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<int64_t> loads_ns(plan.pipelines.size(), 0);
  for (const auto& [work_ns, bin] : bins) {
    const auto least = std::min_element(loads_ns.begin(), loads_ns.end());
    *least += work_ns;
    append(plan.pipelines[static_cast<size_t>(least - loads_ns.begin())], bin, plan.sequences);
  }
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    const schedule::PipelineLoad load = schedule::pipeline_load(pipeline, cost, world_size);
    plan.estimated_ns = std::max(plan.estimated_ns, schedule::schedule_pipeline(load).makespan_ns);
  }
  return plan;
}

StaticStrategy best_static(const ProposalOptions& options, const cost::CostModel& cost) {
  std::optional<StaticStrategy> best;
  int64_t longest = 0;
  for (const SchemeCost& known : usable_schemes(cost, options.world_size, options.max_cp)) {
    const strategy::Scheme& scheme = known.scheme();
    const int64_t lane = cost.max_len_tokens(scheme, options.world_size);
    longest = std::max(longest, lane / 2 * 2 * scheme.cp);
    if (lane_tokens(options.context_length, scheme.cp) > lane) continue;
    for (int halved = 0; halved <= kHalvings; ++halved) {
      StaticStrategy choice{.scheme = scheme,
                            .pipelines = options.world_size / scheme.ranks(),
                            .micro_batch_tokens = std::max<int64_t>(1, lane >> halved)};
      int64_t total_ns = 0;
      for (const std::vector<int64_t>& batch : options.sample_batches) {
        total_ns += static_plan(choice, batch, cost, options.world_size).estimated_ns;
      }
      choice.mean_ns = total_ns / static_cast<int64_t>(std::max<size_t>(options.sample_batches.size(), 1));
      if (!best || choice.mean_ns < best->mean_ns) best = choice;
    }
  }
  if (!best) {
    throw base::InfeasibleError(base::text("no static strategy on ", options.world_size,
                                           " ranks holds context_length ", options.context_length,
                                           ": the longest that fits is ", longest, " tokens"));
  }
  return *best;
}

}  // namespace sluice::plan
