#include "session/codec_choice.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "cost/exchange.h"
#include "graph/build.h"
#include "model/parameters.h"
#include "plan/batch_sample.h"
#include "session/decorators.h"

namespace sluice::session {

namespace {

using strategy::Codec;

// From the sample, evenly spread. Quick plans are of the batches that planners were compared by.
constexpr size_t kChoiceBatches = 4;
constexpr int64_t kLeastPart = 50;  // a codec has to save this part of a step

struct CodecRung {
  std::vector<std::string> settings;
  strategy::WireCodecs codecs;
};

// Codecs in the order of their loss: gradients first, then parameters between lanes or from their owners.
// int8 codecs are tried only if the calibration has the time for coding.
std::vector<CodecRung> codec_rungs(const cost::CostModel::Options& options) {
  constexpr strategy::LevelCodecs kHalf{Codec::kBFloat16, Codec::kBFloat16}, kOf8{Codec::kInt8, Codec::kInt8};
  const std::string push = "link.push = \"int8\"";
  std::vector<CodecRung> all = {{{"link.push = \"bfloat16\""}, {.push = kHalf, .sums = kHalf}}};
  if (options.code_ps_per_element == 0) return all;
  all.push_back({{push}, {.push = kOf8, .sums = kOf8}});
  all.push_back({{push, "link.gather = \"int8\""}, {.push = kOf8, .sums = kOf8, .gather = Codec::kInt8}});
  // Differences need masters that are wider than the transferred numbers.
  if (options.memory.kept_master_bytes() > options.memory.element_bytes)
    all.push_back({{push, "link.pull = \"int8-difference\""},
                   {.pull = strategy::PullCodec::kInt8Difference, .push = kOf8, .sums = kOf8}});
  return all;
}

const plan::Proposal* best_that_holds(std::span<const plan::Proposal> proposals, int64_t context_length) {
  const plan::Proposal* best = nullptr;
  for (const plan::Proposal& each : proposals) {
    if (each.max_len_tokens < context_length || each.mean_estimated_ns == 0) continue;
    if (best == nullptr || each.mean_estimated_ns < best->mean_estimated_ns) best = &each;
  }
  return best;
}

PriceDecorator codec_prices(const strategy::WireCodecs& codecs) {
  return {[codecs](cost::CostModel::Options& options) { options.codecs = codecs; }};
}

// The makespan of the step's graph that the clock timed already; nothing if the schedule, which alone may end
// later than the graph, hides it.
std::optional<int64_t> known_makespan_ns(const ComparedPlanner& compared, size_t batch) {
  const auto known = std::ranges::find(compared.steps, batch, &ClockedStep::batch);
  if (known == compared.steps.end() || known->step_ns == known->planned_ns) return std::nullopt;
  return known->step_ns;
}

// Under quick plans the clocked steps of the comparison are known already.
std::vector<size_t> batches_of_choice(const plan::PlannerOptions& options) {
  if (options.effort == plan::Effort::kQuick) return compared_batches(options);
  return plan::spread_within(options.sample_batches, plan::kMostSampleTokens, kChoiceBatches);
}

// The mean step by the clock. Nothing if a batch is not held.
std::optional<int64_t> mean_makespan_ns(const plan::PlannerOptions& options, const ComparedPlanner& compared,
                                        graph::LinkPlans& links) {
  const plan::Planner& planner = compared.planner;
  const cost::CostModel& cost = planner.cost();
  const model::ParameterTable table = model::parameter_table(cost.options().model, cost.program());
  int64_t sum_ns = 0, batches = 0;
  for (const size_t batch : batches_of_choice(options)) {
    std::optional<int64_t> makespan_ns = known_makespan_ns(compared, batch);
    if (!makespan_ns) {
      const auto plan = planner.try_plan(0, plan::sequences_of(options.sample_batches[batch]));
      if (!plan) return std::nullopt;
      makespan_ns = graph::build(*plan, table, cost, options.world_size,
                                 {.disabled_passes = {"verify"}, .link_plans = &links})
                        .makespan_ns;
    }
    sum_ns += *makespan_ns;
    ++batches;
  }
  return batches == 0 ? std::nullopt : std::optional(sum_ns / batches);
}

// A planner with the codecs, because their buffers leave lanes fewer tokens. Quick plans keep the memory
// policies that were chosen for full-width numbers.
ComparedPlanner coded_planner(const plan::PlannerOptions& options, const ComparedPlanner& wide,
                              const cost::CostModel& coded) {
  if (options.effort == plan::Effort::kQuick)
    return {plan::Planner(wide.planner.options(), cost::choosing_from(coded, options.exchanges)),
            std::nullopt};
  plan::PlannerOptions with = options;
  with.candidates = wide.planner.options().candidates;
  with.selection = plan::Selection::kBest;
  return make_compared_planner(with, coded);
}

}  // namespace

std::optional<CodecChoice> choose_codecs(const plan::PlannerOptions& options, const cost::CostModel& cost,
                                         std::span<const plan::Proposal> proposals) {
  ComparedPlanners planners;
  return choose_codecs(options, cost, proposals, planners);
}

std::optional<CodecChoice> choose_codecs(const plan::PlannerOptions& options, const cost::CostModel& cost,
                                         std::span<const plan::Proposal> proposals,
                                         ComparedPlanners& planners) {
  const plan::Proposal* best = best_that_holds(proposals, options.context_length);
  if (best == nullptr || options.world_size == 1 || options.world_size > kMostClockedRanks)
    return std::nullopt;
  const plan::PlannerOptions comparing = plan::for_comparing(options);
  graph::LinkPlans links(graph::LinkPlanUse::kClock);
  const ComparedPlanner& wide = planners.of(best->strategy, comparing, cost);
  const auto wide_ns = mean_makespan_ns(comparing, wide, links);
  if (!wide_ns) return std::nullopt;
  CodecChoice choice{.strategy = best->strategy, .mean_ns = *wide_ns, .wide_mean_ns = *wide_ns};
  for (CodecRung& rung : codec_rungs(cost.options())) {
    const cost::CostModel coded = decorated(cost, codec_prices(rung.codecs));
    const auto ns = mean_makespan_ns(comparing, coded_planner(comparing, wide, coded), links);
    if (!ns || *ns > choice.mean_ns - choice.mean_ns / kLeastPart) continue;
    choice.settings = std::move(rung.settings);
    choice.codecs = rung.codecs;
    choice.mean_ns = *ns;
  }
  return choice.settings.empty() ? std::nullopt : std::optional(std::move(choice));
}

base::Json to_json(const CodecChoice& choice) {
  return {{"settings", choice.settings},
          {"strategy", to_text(choice.strategy)},
          {"mean_step_ns", choice.mean_ns},
          {"wide_mean_step_ns", choice.wide_mean_ns}};
}

}  // namespace sluice::session
