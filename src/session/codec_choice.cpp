#include "session/codec_choice.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "cost/memory_cost.h"
#include "graph/build.h"
#include "model/parameters.h"
#include "plan/batch_sample.h"
#include "plan/scheme_figures.h"
#include "session/candidates.h"

namespace sluice::session {

namespace {

using strategy::Codec;

constexpr size_t kChoiceBatches = 4;  // of the sample, evenly spread
constexpr int kMostClockedRanks = 8192;    // that graphs of whole steps are built of
constexpr int64_t kLeastPart = 50;  // of a step that a codec has to save

struct CodecRung {
  std::vector<std::string> settings;
  strategy::WireCodecs codecs;
};

// What loses least first: gradients, then parameters on their way between lanes or from their owners. Whole
// numbers count only where the time to code them is known.
std::vector<CodecRung> codec_rungs(const cost::CostModel::Options& options) {
  constexpr strategy::LevelCodecs kHalf{Codec::kBFloat16, Codec::kBFloat16}, kOf8{Codec::kInt8, Codec::kInt8};
  const std::string push = "link.push = \"int8\"";
  std::vector<CodecRung> all = {{{"link.push = \"bfloat16\""}, {.push = kHalf, .sums = kHalf}}};
  if (options.code_ps_per_element == 0) return all;
  all.push_back({{push}, {.push = kOf8, .sums = kOf8}});
  all.push_back({{push, "link.gather = \"int8\""}, {.push = kOf8, .sums = kOf8, .gather = Codec::kInt8}});
  // Differences need masters that are wider than what travels.
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

cost::CostModel with_codecs(const cost::CostModel& cost, const strategy::WireCodecs& codecs) {
  cost::CostModel::Options options = cost.options();
  options.codecs = codecs;
  return cost.with(std::move(options));
}

// Whether buffers for codes leave room for the context.
bool holds_context(const strategy::Strategy& strategy, const cost::CostModel& cost, const PlanningTask& task) {
  return std::ranges::any_of(strategy.pipelines, [&](const strategy::Pipeline& pipeline) {
    const int64_t lane_tokens = cost::MemoryCost(cost, pipeline.scheme).max_len_tokens(task.world_size);
    return plan::longest_on(pipeline.scheme.cp, lane_tokens) >= task.context_length;
  });
}

// Plans hardly depend on what travels; their steps do.
int64_t mean_makespan_ns(const std::vector<strategy::StepPlan>& plans, const cost::CostModel& cost, int ranks) {
  const model::ParameterTable table = model::parameter_table(cost.options().shape, cost.program());
  int64_t sum_ns = 0;
  for (const strategy::StepPlan& plan : plans)
    sum_ns += graph::build(plan, table, cost, ranks, {.disabled_passes = {"verify"}}).makespan_ns;
  return sum_ns / std::ssize(plans);
}

}  // namespace

std::optional<CodecChoice> choose_codecs(const PlanningTask& task, std::span<const plan::Proposal> proposals) {
  const plan::Proposal* best = best_that_holds(proposals, task.context_length);
  if (best == nullptr || task.world_size == 1 || task.world_size > kMostClockedRanks) return std::nullopt;
  PlanningTask one = task;
  one.choices.strategies = {best->strategy};
  one.choices.selection = plan::Selection::kBest;
  const plan::Planner planner = make_planner(one);
  std::vector<strategy::StepPlan> plans;
  for (const size_t batch : plan::spread_within(task.sample_batches, plan::kMostSampleTokens, kChoiceBatches)) {
    auto plan = planner.try_plan(0, plan::sequences_of(task.sample_batches[batch]));
    if (plan) plans.push_back(std::move(*plan));
  }
  if (plans.empty()) return std::nullopt;
  CodecChoice choice{.strategy = best->strategy};
  choice.wide_mean_ns = choice.mean_ns = mean_makespan_ns(plans, planner.cost(), task.world_size);
  for (CodecRung& rung : codec_rungs(planner.cost().options())) {
    const cost::CostModel cost = with_codecs(planner.cost(), rung.codecs);
    if (!holds_context(best->strategy, cost, task)) continue;
    const int64_t ns = mean_makespan_ns(plans, cost, task.world_size);
    if (ns > choice.mean_ns - choice.mean_ns / kLeastPart) continue;
    choice.settings = std::move(rung.settings);
    choice.codecs = rung.codecs;
    choice.mean_ns = ns;
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
