#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "cost/memory_cost.h"
#include "cost/table_figures.h"
#include "graph/build.h"
#include "paper_case.h"
#include "plan/mix.h"
#include "plan/planner.h"
#include "published/paper_plan.h"
#include "published/paper_propose.h"
#include "published/static_strategy.h"
#include "schedule/pipeline_schedule.h"
#include "study/rival_traits.h"

namespace sluice::bench {

using base::Json;

namespace {

std::vector<int64_t> lengths_of(const corpus::Batch& batch) {
  std::vector<int64_t> lengths;
  for (const corpus::Sample& sample : batch.samples) lengths.push_back(sample.length_tokens);
  return lengths;
}

// The schedule of one pipeline with these micro-batches, each of one sequence or all in one.
int64_t schedule_ns(const strategy::Scheme& scheme, const std::vector<std::vector<int64_t>>& micro_batches,
                    const cost::CostModel& cost, int world_size) {
  strategy::PipelinePlan plan{
      .pipeline = strategy::parse_strategy(to_text(scheme), world_size).pipelines.front(),
      .max_len_tokens = cost::MemoryCost(cost, scheme).max_len_tokens(world_size),
      .micro_batches = {}};
  int sequence = 0;
  for (const std::vector<int64_t>& lengths : micro_batches) {
    plan.micro_batches.emplace_back();
    for (const int64_t length : lengths) plan.micro_batches.back().sequences.push_back({sequence++, length});
  }
  return schedule::schedule_pipeline(schedule::pipeline_load(plan, cost, world_size)).makespan_ns;
}

// The exposed time of pull and push in a step whose pipelines run one pack each.
int64_t exposed_ns(const strategy::Strategy& strategy, int64_t tokens, const study::Scenario& scenario,
                   const cost::CostModel& cost) {
  strategy::StepPlan plan;
  for (const strategy::Pipeline& pipeline : strategy.pipelines) {
    const auto sequence = static_cast<int>(plan.sequences.size());
    plan.sequences.push_back({.document = sequence, .length_tokens = tokens});
    strategy::PipelinePlan own{
        .pipeline = pipeline,
        .max_len_tokens = cost::MemoryCost(cost, pipeline.scheme).max_len_tokens(scenario.inputs.world_size),
        .micro_batches = {}};
    own.micro_batches.emplace_back().sequences.push_back({sequence, tokens});
    plan.estimated_ns =
        std::max(plan.estimated_ns,
                 schedule::schedule_pipeline(schedule::pipeline_load(own, cost, scenario.inputs.world_size))
                     .makespan_ns);
    plan.pipelines.push_back(std::move(own));
  }
  const graph::StepGraph graph = graph::build(plan, scenario.table, cost, scenario.inputs.world_size);
  return graph.makespan_ns - plan.estimated_ns;
}

// The strategies that the published system proposes.
std::vector<strategy::Strategy> proposed(const study::Scenario& scenario, const cost::CostModel& cost) {
  return plan::strategies_of(published::paper_propose({.world_size = scenario.inputs.world_size,
                                                       .context_length = scenario.inputs.context_length,
                                                       .sample_batches = scenario.inputs.sample_batches,
                                                       .max_strategies = 8},
                                                      cost)
                                 .or_throw());
}

}  // namespace

// Figures of the two laws of lengths, for comparison with published ones of the corpora.
void corpora(ResultLines& results) {
  for (const char* corpus : {"commoncrawl", "github"}) {
    const Case of{"corpora", "", 0, corpus};
    const Json key = key_of(of, "lengths");
    if (results.has(key)) continue;
    const std::vector<int32_t>& lengths = corpus_lengths(corpus);
    const auto count = static_cast<double>(lengths.size());
    double tokens = 0;
    double cut_tokens = 0;
    double above_15k = 0;
    double above_32k = 0;
    double tokens_above_128k = 0;
    double tokens_above_256k = 0;
    for (const int32_t length : lengths) {
      tokens += length;
      cut_tokens += std::min(length, 32768);
      above_15k += length > 15'000;
      above_32k += length >= 32768;
      tokens_above_128k += length > 131'072 ? length : 0;
      tokens_above_256k += length > 262'144 ? length : 0;
    }
    const double documents = 1.6e6 / (cut_tokens / count);  // in 1.6M tokens
    results.add(key, {{"mean", tokens / count},
                      {"mean_cut_32k", cut_tokens / count},
                      {"p50", lengths[lengths.size() / 2]},
                      {"p90", lengths[lengths.size() * 9 / 10]},
                      {"p99", lengths[lengths.size() * 99 / 100]},
                      {"above_15k_in_1600k", documents * above_15k / count},
                      {"above_32k_in_1600k", documents * above_32k / count},
                      {"tokens_above_128k", tokens_above_128k / tokens},
                      {"tokens_above_256k", tokens_above_256k / tokens}});
  }
}

void figure_17(ResultLines& results) {
  const Case of{"figure17", "32b", 64, "commoncrawl", 32768, 1'600'000};
  const Json key = key_of(of, "lengths");
  if (results.has(key)) return;
  Json longest = Json::array();
  for (const corpus::Batch& batch : scenario_of(of, 30).batches) {
    int64_t most = 0;
    for (const corpus::Sample& sample : batch.samples) most = std::max(most, sample.length_tokens);
    longest.push_back(most);
  }
  results.add(key, {{"longest", longest}});
}

// First-fit decreasing to 32K; only batches of four packed sequences, as published.
void figure_18(ResultLines& results) {
  const Case of{"figure18", "7b", 8, "commoncrawl"};
  const study::Scenario scenario = scenario_of(of, 60);
  const cost::CostModel cost = study::one_backward_cell(scenario.inputs.cost);
  for (const auto& [name, scheme] :
       {std::pair{"PP", strategy::Scheme{.tp = 4, .pp = 2}}, std::pair{"DP", strategy::Scheme{.tp = 4}}}) {
    const Json key = key_of(of, name);
    if (results.has(key)) continue;
    Json times = Json::array();
    for (const corpus::Batch& batch : scenario.batches) {
      std::vector<int64_t> lengths;
      for (const corpus::Sample& sample : batch.samples) lengths.push_back(sample.length_tokens);
      const published::StaticStrategy choice{.scheme = scheme,
                                             .pipelines = of.gpus / scheme.ranks(),
                                             .micro_batch_tokens = of.context,
                                             .dealing = published::Dealing::kTurns};
      const strategy::StepPlan plan = published::static_plan(choice, lengths, cost, of.gpus);
      size_t packs = 0;
      for (const strategy::PipelinePlan& pipeline : plan.pipelines) packs += pipeline.micro_batches.size();
      if (packs == 4) times.push_back(plan.estimated_ns);
    }
    results.add(key, {{"times_ns", times}});
  }
}

void figure_19b(ResultLines& results) {
  const Case of{"figure19b", "13b", 16, "commoncrawl"};
  const Json key = key_of(of, "packing");
  if (results.has(key)) return;
  const cost::CostModel cost = study::one_backward_cell(scenario_of(of, 1).inputs.cost);
  Json rows = Json::array();
  for (const strategy::Scheme& scheme : cost.schemes(of.gpus)) {
    if (scheme.pp != 2 || cost::is_derived(cost, scheme)) continue;
    for (const int64_t length : {512, 2048}) {
      if (2 * length > cost::MemoryCost(cost, scheme).max_len_tokens(of.gpus)) continue;
      rows.push_back({{"scheme", to_text(scheme)},
                      {"length", length},
                      {"apart_ns", schedule_ns(scheme, {{length}, {length}}, cost, of.gpus)},
                      {"packed_ns", schedule_ns(scheme, {{length, length}}, cost, of.gpus)}});
    }
  }
  results.add(key, {{"rows", rows}});
}

// By strategy and batch: Algorithm 1's estimate over that of the ideal search and over the proved lower
// bound; and the time of Algorithm 1's schedule over that of the ideal search's.
void figure_20(int64_t steps, ResultLines& results) {
  constexpr int64_t kNodes = 50'000;
  const Case of{"figure20", "32b", 64, "commoncrawl", 32768, 200'000};
  const Json key = key_of(of, "dispatch");
  if (results.has(key)) return;
  const study::Scenario scenario = scenario_of(of, steps);
  const cost::CostModel cost = study::one_backward_cell(scenario.inputs.cost);
  const std::vector<strategy::Strategy> strategies = proposed(scenario, cost);
  const plan::Planner planner({.world_size = of.gpus, .candidates = strategies, .method = published::paper()},
                              cost);
  published::PaperOptions greedy{
      .dispatch = {.constants = published::ConstantRule::kReleased},
      .pack = {.constants = published::ConstantRule::kReleased, .node_budget = 20'000}};
  published::PaperOptions ideal = greedy;
  ideal.dispatch_rule = published::DispatchRule::kIdeal;
  ideal.ideal_node_budget = kNodes;
  Json rows = Json::array();
  for (const strategy::Strategy& strategy : strategies) {
    std::vector<const plan::SchemeCost*> schemes;
    for (const strategy::Pipeline& pipeline : strategy.pipelines)
      schemes.push_back(&planner.schemes().of(pipeline));
    Json estimates = Json::array(), bounds = Json::array(), steps_ns = Json::array();
    int64_t proved = 0;
    for (const corpus::Batch& batch : scenario.batches) {
      const std::vector<int64_t> lengths = lengths_of(batch);
      const auto first = published::dispatch(lengths, schemes, greedy.dispatch);
      if (!first) continue;
      const auto best = published::ideal_dispatch(lengths, schemes, greedy.dispatch, kNodes);
      const auto ratio = [](int64_t above, int64_t below) {
        return static_cast<double>(above) / static_cast<double>(below);
      };
      estimates.push_back(ratio(first->estimated_ns, best->best.estimated_ns));
      bounds.push_back(ratio(first->estimated_ns, best->lower_ns));
      proved += best->proved ? 1 : 0;
      const auto run_ns = [&](const published::PaperOptions& options) {
        return published::plan_by_paper(strategy, planner.schemes(), cost, lengths, options)->makespan_ns;
      };
      steps_ns.push_back(ratio(run_ns(greedy), run_ns(ideal)));
    }
    rows.push_back({{"strategy", to_text(strategy)},
                    {"estimates", estimates},
                    {"bounds", bounds},
                    {"steps", steps_ns},
                    {"proved", proved}});
  }
  results.add(key, {{"rows", rows}});
}

// The time of pull and push that packs leave exposed, with <16,1,1> on all GPUs as in the paper's example.
void appendix_b2(ResultLines& results) {
  const Case of{"appendix_b2", "32b", 64, "commoncrawl"};
  const Json key = key_of(of, "packs");
  if (results.has(key)) return;
  const study::Scenario scenario = scenario_of(of, 1);
  const cost::CostModel cost = study::one_backward_cell(scenario.inputs.cost);
  const strategy::Strategy strategy = strategy::parse_strategy("4x<16,1,1>", of.gpus);
  const int64_t whole_ns = exposed_ns(strategy, 16, scenario, cost);  // with almost nothing to hide it
  Json rows = Json::array();
  for (int64_t tokens = 512; tokens <= 32768; tokens *= 2)
    rows.push_back({{"tokens", tokens}, {"exposed_ns", exposed_ns(strategy, tokens, scenario, cost)}});
  results.add(key, {{"whole_ns", whole_ns}, {"rows", rows}});
}

}  // namespace sluice::bench
