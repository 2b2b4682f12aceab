#include "published/static_strategy.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "cost/memory_cost.h"
#include "plan/bins.h"
#include "plan/mix.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::published {
namespace {

constexpr int kHalvings = 3;  // halvings of the longest micro-batch

// Tokens on one lane of a sequence that is cut into two chunks per lane.
int64_t lane_tokens(int64_t length, int cp) {
  return cp == 1 ? length : 2 * ((length + 2 * cp - 1) / (2 * cp));
}

std::vector<plan::PackItem> items_of(std::span<const int64_t> lengths, const cost::CostModel& cost,
                                     const strategy::Scheme& scheme) {
  const cost::Quadratic times = cost.stage_times(scheme, 0);
  std::vector<plan::PackItem> items;
  for (size_t s = 0; s < lengths.size(); ++s) {
    const int64_t tokens = lane_tokens(lengths[s], scheme.cp);
    items.push_back(
        {.sequence = static_cast<int>(s),
         .tokens = tokens,
         .work_ns = times.of_work(cost::Work::of_lane(tokens, lengths[s], scheme.cp, cost.window()))});
  }
  return items;
}

// Adds a micro-batch on all lanes.
void append(strategy::PipelinePlan& to, const std::vector<int>& bin,
            const std::vector<strategy::Sequence>& sequences) {
  strategy::PipelineMicroBatch micro_batch{.lanes = to.pipeline.scheme.cp, .sequences = {}};
  if (micro_batch.lanes > 1) micro_batch.number = static_cast<int>(to.micro_batches.size());
  for (const int s : bin)
    micro_batch.sequences.push_back({s, sequences[static_cast<size_t>(s)].length_tokens});
  to.micro_batches.push_back(std::move(micro_batch));
}

// By pipeline, the indices of its micro-batches.
std::vector<std::vector<size_t>> deal(const std::vector<int64_t>& work_ns, size_t pipelines,
                                      Dealing dealing) {
  std::vector<std::vector<size_t>> dealt(pipelines);
  std::vector<size_t> order(work_ns.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (dealing == Dealing::kTurns) {
    for (const size_t bin : order) dealt[bin % pipelines].push_back(bin);
    return dealt;
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return work_ns[a] > work_ns[b]; });
  std::vector<int64_t> loads_ns(pipelines, 0);
  for (const size_t bin : order) {
    const auto least = std::min_element(loads_ns.begin(), loads_ns.end());
    *least += work_ns[bin];
    dealt[static_cast<size_t>(least - loads_ns.begin())].push_back(bin);
  }
  return dealt;
}

// Micro-batch sizes worth trying, if a lane holds `lane` tokens.
std::vector<int64_t> micro_batch_sizes(int64_t lane, int64_t context) {
  std::vector<int64_t> sizes = {context};
  for (int halved = 0; halved <= kHalvings; ++halved) sizes.push_back(std::max<int64_t>(1, lane >> halved));
  return sizes;
}

// A batch's micro-batches as lists of items, and the micro-batches of each pipeline.
struct DealtBins {
  std::vector<plan::PackItem> items;
  plan::Bins bins;
  std::vector<std::vector<size_t>> by_pipeline;
};

DealtBins dealt_bins(const StaticStrategy& choice, std::span<const int64_t> lengths,
                     const cost::CostModel& cost) {
  DealtBins dealt{.items = items_of(lengths, cost, choice.scheme)};
  int64_t capacity = choice.micro_batch_tokens;
  for (const plan::PackItem& item : dealt.items) capacity = std::max(capacity, item.tokens);
  dealt.bins = plan::first_fit_decreasing(dealt.items, capacity);
  std::vector<int64_t> work_ns;
  for (const std::vector<int>& bin : dealt.bins) {
    work_ns.push_back(0);
    for (const int item : bin) work_ns.back() += dealt.items[static_cast<size_t>(item)].work_ns;
  }
  dealt.by_pipeline = deal(work_ns, static_cast<size_t>(choice.pipelines), choice.dealing);
  return dealt;
}

strategy::Strategy strategy_of(const StaticStrategy& choice, int world_size) {
  return strategy::parse_strategy(base::text(choice.pipelines, "x", to_text(choice.scheme)), world_size);
}

int64_t mean_ns(const StaticStrategy& choice, const plan::PlannerOptions& options,
                const cost::CostModel& cost) {
  int64_t total_ns = 0;
  for (const std::vector<int64_t>& batch : options.sample_batches) {
    total_ns += static_estimate_ns(choice, batch, cost, options.world_size);
  }
  return total_ns / static_cast<int64_t>(std::max<size_t>(options.sample_batches.size(), 1));
}

}  // namespace

std::string to_text(const StaticStrategy& choice) {
  std::vector<std::string> degrees;
  const auto add = [&](const char* name, int degree) {
    if (degree > 1) degrees.push_back(base::text(name, degree));
  };
  add("DP", choice.pipelines);
  add("TP", choice.scheme.tp);
  add("PP", choice.scheme.pp);
  add("CP", choice.scheme.cp);
  return degrees.empty() ? "DP1" : base::join(degrees, " ");
}

strategy::StepPlan static_plan(const StaticStrategy& choice, std::span<const int64_t> lengths,
                               const cost::CostModel& cost, int world_size) {
  const strategy::Strategy strategy = strategy_of(choice, world_size);
  strategy::StepPlan plan;
  for (const int64_t length : lengths) plan.sequences.push_back({.length_tokens = length});
  for (const strategy::Pipeline& pipeline : strategy.pipelines) {
    plan.pipelines.push_back(
        {.pipeline = pipeline,
         .max_len_tokens = cost::MemoryCost(cost, choice.scheme).max_len_tokens(world_size),
         .micro_batches = {}});
  }
  const DealtBins dealt = dealt_bins(choice, lengths, cost);
  for (size_t p = 0; p < dealt.by_pipeline.size(); ++p) {
    for (const size_t bin : dealt.by_pipeline[p]) append(plan.pipelines[p], dealt.bins[bin], plan.sequences);
  }
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    const schedule::PipelineLoad load = schedule::pipeline_load(pipeline, cost, world_size);
    plan.estimated_ns = std::max(plan.estimated_ns, schedule::schedule_pipeline(load).makespan_ns);
  }
  return plan;
}

int64_t static_estimate_ns(const StaticStrategy& choice, std::span<const int64_t> lengths,
                           const cost::CostModel& cost, int world_size) {
  const strategy::Scheme& scheme = choice.scheme;
  const DealtBins dealt = dealt_bins(choice, lengths, cost);
  const strategy::Strategy strategy = strategy_of(choice, world_size);
  int64_t longest_ns = 0;
  for (size_t p = 0; p < dealt.by_pipeline.size(); ++p) {
    if (dealt.by_pipeline[p].empty()) continue;
    const schedule::MicroBatchTimes times(strategy.pipelines[p], cost);
    schedule::PipelineLoad load{.stages = scheme.pp,
                                .lanes = scheme.cp,
                                .credit_tokens = cost::MemoryCost(cost, scheme).credit_tokens(world_size)};
    for (const size_t bin : dealt.by_pipeline[p]) {
      cost::Work work;
      for (const int i : dealt.bins[bin]) {
        const plan::PackItem& item = dealt.items[static_cast<size_t>(i)];
        work += cost::Work::of_lane(item.tokens, lengths[static_cast<size_t>(item.sequence)], scheme.cp,
                                    cost.window());
      }
      load.micro_batches.push_back(
          times.of(std::vector<cost::Work>(static_cast<size_t>(scheme.cp), work), 0));
    }
    longest_ns = std::max(longest_ns, schedule::schedule_pipeline(load).makespan_ns);
  }
  return longest_ns;
}

StaticStrategy best_static(const plan::PlannerOptions& options, const cost::CostModel& cost,
                           Dealing dealing) {
  std::optional<StaticStrategy> best;
  int64_t longest = 0;
  for (const plan::SchemeCost& known : plan::usable_schemes(cost, options.world_size, options.max_cp)) {
    const strategy::Scheme& scheme = known.scheme();
    const int64_t lane = cost::MemoryCost(cost, scheme).max_len_tokens(options.world_size);
    const int64_t context = lane_tokens(options.context_length, scheme.cp);
    longest = std::max(longest, lane / 2 * 2 * scheme.cp);
    if (context > lane) continue;
    for (const int64_t tokens : micro_batch_sizes(lane, context)) {
      StaticStrategy choice{.scheme = scheme,
                            .pipelines = options.world_size / scheme.ranks(),
                            .micro_batch_tokens = tokens,
                            .dealing = dealing};
      choice.mean_ns = mean_ns(choice, options, cost);
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

}  // namespace sluice::published
