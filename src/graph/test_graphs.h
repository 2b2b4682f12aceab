// Small models, costs and plans for tests of the graph. Header-only; no part of the library.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"
#include "cost/cost_model.h"
#include "cost/exchange.h"
#include "cost/memory_cost.h"
#include "graph/build.h"
#include "model/head_parts.h"
#include "model/parameters.h"
#include "model/test_outline.h"
#include "model/test_tuning.h"
#include "strategy/pass.h"

namespace sluice::graph::testing {

struct CostOptions {
  int gpus_per_node = 8;
  int64_t device_bytes = 1 << 20;
  int64_t latency_ns = 50;
  model::KindTimes cut_times = {};
};

// Round figures: a layer's forward takes 10 ns per token and 100 ns per
// micro-batch, divided by tp, and saves 1000 bytes per token and layer.
inline cost::CostModel small_cost(const model::Outline& outline, const CostOptions& options = {}) {
  cost::CostModel::Options result;
  result.model = outline;
  const size_t kinds = model::Program(outline).kinds().size();
  for (int tp = 1; tp <= 8; ++tp) {
    const double share = 1.0 / tp;
    const cost::Quadratic embedding = cost::Quadratic::from_ns(0, share, 10);
    const cost::KindCost layer{{cost::Quadratic::from_ns(0.01 * share, 10 * share, 100),
                                cost::Quadratic::from_ns(0.02 * share, 11 * share, 120),
                                cost::Quadratic::from_ns(0, 10 * share, 80)},
                               16,
                               4};
    std::vector<cost::KindCost>& of_kinds = result.kinds_by_tp[tp];
    of_kinds.assign(kinds, layer);
    of_kinds.front() = {.times = {embedding, embedding, {}}};
    of_kinds.back() = {.times = {cost::Quadratic::from_ns(0, 15 * share, 50), {}, {}}};
  }
  result.intra = {options.latency_ns, 40'000'000'000};
  result.inter = {2 * options.latency_ns, 10'000'000'000};
  result.update_ps_per_element = 50;
  result.memory.device_bytes = options.device_bytes;
  result.topology = options.gpus_per_node;
  result.cut_times = options.cut_times;
  return cost::CostModel(result);
}

// Adds a micro-batch after its lanes' earlier ones.
inline void add_pipeline_micro_batch(strategy::StepPlan& plan, int pipeline,
                                     strategy::PipelineMicroBatch micro_batch) {
  strategy::PipelinePlan& to = plan.pipelines[static_cast<size_t>(pipeline)];
  to.micro_batches.push_back(std::move(micro_batch));
  to.micro_batches = strategy::in_injection_order(std::move(to.micro_batches), to.pipeline.scheme.cp);
}

// Adds new sequences as a micro-batch of one lane.
inline void add_micro_batch(strategy::StepPlan& plan, int pipeline, int lane,
                            const std::vector<int64_t>& lengths) {
  strategy::PipelineMicroBatch micro_batch{.first_lane = lane, .sequences = {}};
  for (const int64_t length : lengths) {
    micro_batch.sequences.push_back({static_cast<int32_t>(plan.sequences.size()), length});
    plan.sequences.push_back({static_cast<int64_t>(plan.sequences.size()), 0, length});
  }
  add_pipeline_micro_batch(plan, pipeline, std::move(micro_batch));
}

// Adds a sequence that is cut over the lanes [first, first + lanes).
inline void add_ring(strategy::StepPlan& plan, int pipeline, int first, int lanes, int64_t length, int ring) {
  const auto sequence = static_cast<int32_t>(plan.sequences.size());
  plan.sequences.push_back({sequence, 0, length});
  add_pipeline_micro_batch(
      plan, pipeline,
      {.first_lane = first, .lanes = lanes, .sequences = {{sequence, length}}, .number = ring});
}

inline strategy::StepPlan empty_plan(const strategy::Strategy& strategy) {
  strategy::StepPlan plan;
  for (const strategy::Pipeline& pipeline : strategy.pipelines)
    plan.pipelines.push_back({pipeline, 1 << 20, {}});
  return plan;
}

// "<1,2,1> + <2,1,1>" and, by pipeline, "60+40, 80": micro-batches separated by commas, sequences by plus
// signs; "-" for none. Lanes are separated by "/"; a ring over all lanes is written "ring 90" on the first.
inline strategy::StepPlan plan_from_text(const std::string& strategy, const std::vector<std::string>& loads,
                                         int world_size) {
  strategy::StepPlan plan = empty_plan(strategy::parse_strategy(strategy, world_size));
  int rings = 0;
  for (size_t p = 0; p < loads.size(); ++p) {
    const std::vector<std::string> lanes = base::split(loads[p], '/');
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      for (const std::string& part : base::split(lanes[lane], ',')) {
        const std::string text(base::trim(part));
        if (text.empty() || text == "-") continue;
        const int pipeline = static_cast<int>(p);
        if (text.starts_with("ring ")) {
          const int over = plan.pipelines[p].pipeline.scheme.cp;
          add_ring(plan, pipeline, 0, over, base::parse_integer(text.substr(5)).value(), rings++);
          continue;
        }
        std::vector<int64_t> lengths;
        for (const std::string& length : base::split(text, '+')) {
          lengths.push_back(base::parse_integer(base::trim(length)).value());
        }
        add_micro_batch(plan, pipeline, static_cast<int>(lane), lengths);
      }
    }
  }
  for (strategy::PipelinePlan& pipeline : plan.pipelines) strategy::assign_passes(pipeline);
  return plan;
}

// A random heterogeneous case: up to 12 ranks, TP and PP up to 4, sometimes lanes, idle ranks, empty
// pipelines, nodes of 1–8 ranks, and devices so small that credits bind.
struct RandomCase {
  int world_size = 1;
  model::Outline model;
  model::ParameterTable table;
  cost::CostModel cost;
  strategy::StepPlan plan;
};

struct RandomOptions {
  int max_ranks = 12;
  int max_pipelines = 12;
  int max_lanes = 1;
  int max_stages = 4;
  int max_fsdp = 1;
  bool tight = true;      // sometimes
  bool policies = false;  // micro-batches recompute and offload, sometimes
  bool freezes = false;   // the embedding and the first layers, perhaps all of them
};

inline void freeze_first(int64_t layers, model::Outline& outline) {
  std::vector<std::string> frozen = {"model.embed_tokens"};
  for (int64_t layer = 0; layer < layers; ++layer) frozen.push_back(base::text("model.layers.", layer));
  model::freeze(outline, frozen);
}

// Times with which stages differ in length.
inline model::KindTimes random_times(uint64_t seed, size_t kinds) {
  base::Rng rng(seed, 80);
  model::KindTimes times;
  for (int tp = 1; tp <= 4; ++tp) {
    if (rng.below(2) == 0) continue;
    for (size_t kind = 0; kind < kinds; ++kind) times[tp].push_back(rng.between(0, 20));
  }
  return times;
}

inline strategy::Strategy random_strategy(base::Rng& rng, const RandomOptions& options, int world_size) {
  std::vector<int> ranks;
  for (int rank = 0; rank < world_size; ++rank) ranks.push_back(rank);
  if (rng.below(2) == 0) rng.shuffle(ranks);
  strategy::Strategy strategy;
  size_t used = 0;
  while (static_cast<int>(strategy.pipelines.size()) < options.max_pipelines) {
    strategy::Scheme scheme{static_cast<int>(rng.between(1, 4)),
                            static_cast<int>(rng.between(1, options.max_stages)),
                            static_cast<int>(rng.between(1, options.max_lanes))};
    const int share = options.max_fsdp == 1 ? 1 : static_cast<int>(rng.between(1, options.max_fsdp));
    if (scheme.cp % share == 0) scheme.fsdp = share;
    if (used + static_cast<size_t>(scheme.ranks()) > ranks.size()) break;
    const auto first = ranks.begin() + static_cast<ptrdiff_t>(used);
    if (scheme.fsdp > 1) std::sort(first, first + scheme.ranks());
    strategy.pipelines.push_back({scheme, std::vector<int>(first, first + scheme.ranks())});
    used += static_cast<size_t>(scheme.ranks());
  }
  if (strategy.pipelines.empty()) strategy.pipelines.push_back({{1, 1, 1}, {ranks.front()}});
  return strategy;
}

inline void fill_pipeline(base::Rng& rng, strategy::StepPlan& plan, int pipeline, int64_t longest) {
  const int lanes = plan.pipelines[static_cast<size_t>(pipeline)].pipeline.scheme.cp;
  const int64_t micro_batches = rng.between(1, 8);
  for (int64_t i = 0; i < micro_batches; ++i) {
    const int first = static_cast<int>(rng.below(static_cast<uint64_t>(lanes)));
    const int over = static_cast<int>(rng.between(1, lanes - first));
    if (over > 1 && rng.below(3) == 0) {
      add_ring(plan, pipeline, first, over, rng.between(2 * over, longest), static_cast<int>(i));
    } else {
      const int64_t length = rng.between(1, longest);
      add_micro_batch(plan, pipeline, first, {length / 2 + 1, length - length / 2});
    }
  }
}

// Sets exchanges of micro-batches of several lanes: ring, heads,
// head groups or moving queries, as heads and room allow.
inline void set_random_exchanges(uint64_t seed, const cost::CostModel& cost, int world_size,
                                 strategy::StepPlan& plan) {
  base::Rng rng(seed, 79);
  for (strategy::PipelinePlan& pipeline : plan.pipelines) {
    const strategy::Scheme& scheme = pipeline.pipeline.scheme;
    const int64_t heads = model::most_head_lanes(cost.options().model, scheme.tp);
    const cost::Exchanges exchanges(scheme, cost);
    for (strategy::PipelineMicroBatch& micro_batch : pipeline.micro_batches) {
      const auto run = static_cast<int>(rng.between(1, micro_batch.lanes));
      cost::ExchangeChoice choice{strategy::kExchanges[rng.below(strategy::kExchanges.size())]};
      if (choice.exchange == strategy::Exchange::kNested) choice.nested_lanes = run;
      const bool nests =
          choice.exchange != strategy::Exchange::kNested || (run > 1 && run < micro_batch.lanes);
      const int head_lanes = choice.head_lanes(micro_batch.lanes);
      if (micro_batch.lanes == 1 || !nests || micro_batch.lanes % head_lanes != 0 || head_lanes > heads)
        continue;
      if (exchanges.credit_tokens(choice, micro_batch.lanes, micro_batch.tokens()) >
          cost::MemoryCost(cost, scheme).max_len_tokens(world_size))
        continue;
      micro_batch.exchange = choice.exchange;
      micro_batch.nested_lanes = choice.nested_lanes;
    }
  }
}

inline void set_random_policies(uint64_t seed, strategy::StepPlan& plan) {
  base::Rng rng(seed, 78);
  if (rng.below(3) == 0) return;
  std::vector<strategy::MemoryPolicy> policies(4);
  for (strategy::MemoryPolicy& policy : policies) {
    policy.recompute_permille =
        rng.below(2) == 0
            ? 0
            : (rng.below(2) == 0 ? strategy::MemoryPolicy::kAll : static_cast<int>(rng.between(1, 999)));
    policy.offload_permille = rng.below(2) == 0 ? 0 : static_cast<int>(rng.between(1, 1000));
  }
  for (strategy::PipelinePlan& pipeline : plan.pipelines) {
    for (size_t i = 0; i < pipeline.micro_batches.size(); ++i)
      pipeline.micro_batches[i].memory = policies[i % policies.size()];
  }
}

inline RandomCase random_case(uint64_t seed, const RandomOptions& options = {}) {
  base::Rng rng(seed, 77);
  const int world_size = static_cast<int>(rng.between(1, options.max_ranks));
  model::Outline outline = model::outline_of_12_heads(rng.between(options.max_stages, 9), rng.below(3) == 0);
  if (options.freezes) freeze_first(static_cast<int64_t>(seed) % (outline.layers + 1), outline);
  const bool tight = options.tight && rng.below(2) == 0;
  const CostOptions cost_options{.gpus_per_node = static_cast<int>(rng.between(1, 8)),
                                 .device_bytes = tight ? rng.between(200'000, 2'000'000) : 1'000'000'000,
                                 .latency_ns = rng.between(1, 2000),
                                 .cut_times = random_times(seed, model::Program(outline).kinds().size())};
  const cost::CostModel cost = small_cost(outline, cost_options);
  RandomCase result{world_size, outline, model::parameter_table(outline, cost.program()), cost, {}};
  const strategy::Strategy strategy = random_strategy(rng, options, world_size);
  result.plan = empty_plan(strategy);
  result.plan.step = static_cast<int64_t>(seed);
  for (size_t p = 0; p < strategy.pipelines.size(); ++p) {
    const bool idle = p > 0 && rng.below(5) == 0;
    const int64_t holds =
        cost::MemoryCost(result.cost, strategy.pipelines[p].scheme).max_len_tokens(world_size);
    const int64_t longest = std::min<int64_t>(holds - 2, 2000);
    if (!idle && longest >= 16) fill_pipeline(rng, result.plan, static_cast<int>(p), longest);
  }
  if (result.plan.sequences.empty()) {  // no pipeline holds anything
    RandomOptions roomy = options;
    roomy.tight = false;
    return random_case(seed, roomy);
  }
  set_random_exchanges(seed, result.cost, world_size, result.plan);
  if (options.policies) set_random_policies(seed, result.plan);
  for (strategy::PipelinePlan& pipeline : result.plan.pipelines) strategy::assign_passes(pipeline);
  return result;
}

}  // namespace sluice::graph::testing
