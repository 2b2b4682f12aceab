// plan_instances --count N --seed S [--threads T]: random calibrations, strategies and lengths with their
// plans, one JSON line an instance: {instance, world_size, calibration, candidates: [[{scheme, ranks}]],
// proposed: [strategy], lengths, plans: [{choice, plan}]}. What plan_checker.py checks, and what
// determinism.py compares between compilers. Integers only, so that every build makes the same inputs; with
// T threads all plans of an instance are made at the same time, each by all threads.
#include <algorithm>
#include <future>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/rng.h"
#include "base/text.h"
#include "cost/analytic.h"
#include "cost/calibration.h"
#include "cost/memory_cost.h"
#include "model/outline.h"
#include "model/parameter_count.h"
#include "plan/planner.h"
#include "plan/proposal.h"
#include "plan/propose.h"
#include "published/paper_plan.h"

namespace sluice::checker {
namespace {

using base::Json;
using base::Rng;
using base::text;
using cost::Calibration;
using cost::Quadratic;
using strategy::Strategy;

struct Options {
  int64_t count = 50;
  int64_t seed = 1;
  int64_t threads = 1;
};

struct Instance {
  int world_size = 1;
  Calibration calibration;
  std::vector<Strategy> candidates;
  std::vector<std::string> proposed;
  std::vector<strategy::Sequence> sequences;
};

// From 1 to 2^bits, every size equally likely.
int64_t skewed(Rng& rng, int bits) { return rng.between(1, int64_t{1} << rng.between(0, bits)); }

model::Outline random_shape(Rng& rng) {
  const int64_t head_dim = 8 * rng.between(1, 8);
  const int64_t heads = 8 * rng.between(1, 4);
  return {.layers = rng.between(1, 24),
          .hidden = heads * head_dim,
          .heads = heads,
          .kv_heads = rng.below(2) == 0 ? heads : 8,
          .head_dim = head_dim,
          .ffn_hidden = rng.between(16, 2000),
          .vocab = rng.between(64, 40'000),
          .tie_embeddings = rng.below(3) == 0};
}

// Usually some ns a token and square terms that matter from thousands of tokens on; sometimes anything.
Quadratic random_times(Rng& rng, int tp) {
  if (rng.below(6) == 0) return {.a = skewed(rng, 26), .b = skewed(rng, 45), .c_ns = skewed(rng, 18) - 1};
  return {.a = rng.between(1 << 20, 1 << 24) / tp,
          .b = rng.between(int64_t{1} << 34, int64_t{1} << 38) / tp,
          .c_ns = skewed(rng, 18)};
}

Quadratic third_of(const Quadratic& times) {
  return {.a = times.a / 3, .b = times.b / 3 + 1, .c_ns = times.c_ns / 3};
}

void fill_degree(Rng& rng, int tp, cost::CostModel::Options& options) {
  const Quadratic layer = random_times(rng, tp);
  const bool alike = rng.below(2) == 0;
  cost::KindCost embedding, block, head;
  block.times = {layer, alike ? layer : random_times(rng, tp),
                 alike ? third_of(layer) : random_times(rng, tp)};
  embedding.times = {third_of(layer), third_of(layer), {}};
  head.times.forward = random_times(rng, tp);
  block.saved_bytes_per_token = rng.between(100, 10'000) / tp;
  block.deferred_bytes_per_token = skewed(rng, 10) - 1;
  options.kinds_by_tp[tp] = {embedding, block, head};
}

constexpr int kDegrees[] = {1, 2, 4, 8};

// Devices between too small for the model and roomy.
int64_t random_device_bytes(Rng& rng, const model::Model& model) {
  return model::parameter_count(model) * rng.between(4, 30) + skewed(rng, 28);
}

// Often of nodes alone.
strategy::Topology random_topology(Rng& rng) {
  const auto node_ranks = static_cast<int>(rng.between(1, 8));
  std::vector<int> group_ranks;
  for (int before = node_ranks; rng.below(3) == 0; before = group_ranks.back())
    group_ranks.push_back(before * static_cast<int>(rng.between(2, 4)));
  return {node_ranks, 1, std::move(group_ranks)};
}

cost::LinkTimes slower(Rng& rng, const cost::LinkTimes& link) {
  return {link.latency_ns + skewed(rng, 16), std::max<int64_t>(1, link.bytes_per_s / rng.between(1, 8))};
}

Calibration random_calibration(Rng& rng) {
  Calibration calibration{.hardware = "random", .source = "plan_instances"};
  cost::CostModel::Options& options = calibration.options;
  options.model = random_shape(rng);
  for (const int tp : kDegrees) fill_degree(rng, tp, options);
  options.intra = {skewed(rng, 14), skewed(rng, 40) + 1'000'000'000};
  options.inter = {skewed(rng, 16), skewed(rng, 34) + 1'000'000'000};
  options.update_ps_per_element = skewed(rng, 10);
  options.memory = {.device_bytes = random_device_bytes(rng, options.model),
                    .transient_bytes_per_token = skewed(rng, 16),
                    .logits_chunk_bytes = skewed(rng, 20)};
  options.topology = random_topology(rng);
  for (size_t i = 0; i < options.topology.group_ranks().size(); ++i)
    options.beyond.push_back(slower(rng, options.link(static_cast<int>(i) + 1)));
  return calibration;
}

Calibration analytic_calibration(Rng& rng) {
  const model::Outline outline = random_shape(rng);
  const cost::AnalyticMemory memory{.device_bytes = random_device_bytes(rng, outline)};
  const int gpus_per_node = static_cast<int>(rng.between(1, 8));
  return {.hardware = "analytic",
          .source = "plan_instances",
          .options = cost::analytic_options(outline, {}, memory, kDegrees, gpus_per_node)};
}

Strategy random_strategy(Rng& rng, int world_size, int64_t layers) {
  std::vector<int> ranks;
  for (int rank = 0; rank < world_size; ++rank) ranks.push_back(rank);
  if (rng.below(4) == 0) rng.shuffle(ranks);
  Strategy strategy;
  size_t used = 0;
  for (int tries = 0; tries < 20; ++tries) {
    const strategy::Scheme scheme{.tp = kDegrees[rng.below(1 + rng.below(4))],
                                  .pp = static_cast<int>(rng.between(1, std::min<int64_t>(8, layers))),
                                  .cp = rng.below(4) == 0 ? static_cast<int>(rng.between(2, 4)) : 1};
    for (int64_t copies = rng.between(1, 3); copies > 0; --copies) {
      if (used + static_cast<size_t>(scheme.ranks()) > ranks.size()) break;
      const auto first = ranks.begin() + static_cast<std::ptrdiff_t>(used);
      strategy.pipelines.push_back({scheme, {first, first + scheme.ranks()}});
      used += static_cast<size_t>(scheme.ranks());
    }
    if (!strategy.pipelines.empty() && rng.below(4) == 0) break;
  }
  if (strategy.pipelines.empty()) strategy.pipelines.push_back({{}, {ranks.front()}});
  return strategy;
}

plan::Planner planner_of(const Instance& instance, plan::PlannerOptions options) {
  options.world_size = instance.world_size;
  options.candidates = instance.candidates;
  return {std::move(options), cost::CostModel(instance.calibration.options)};
}

// Lengths that crowd near the short end, near what is held, or are all equal.
std::vector<int64_t> random_lengths(Rng& rng, int64_t longest) {
  const int64_t count = rng.between(1, 80);
  const uint64_t kind = rng.below(4);
  const int64_t equal = rng.between(1, longest);
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t any = rng.between(1, longest);
    lengths.push_back(kind == 0 ? equal : kind == 1 ? any : std::max<int64_t>(1, any * any / longest));
  }
  if (rng.below(4) == 0) lengths.back() = longest;
  return lengths;
}

void propose(Rng& rng, Instance& instance, int64_t longest) {
  const plan::PlannerOptions options{
      .world_size = instance.world_size,
      .context_length = longest,
      .sample_batches = {random_lengths(rng, longest), random_lengths(rng, longest)}};
  const auto proposals = plan::propose(options, cost::CostModel(instance.calibration.options));
  if (!proposals) return;  // a random candidate may hold more than any that is proposed
  for (Strategy& strategy : strategies_of(*proposals)) {
    instance.proposed.push_back(to_text(strategy));
    instance.candidates.push_back(std::move(strategy));
  }
}

Instance random_instance(uint64_t seed) {
  for (uint64_t attempt = 0;; ++attempt) {
    Rng rng(seed, attempt);
    Instance instance{.world_size = static_cast<int>(skewed(rng, 5))};
    instance.calibration = rng.below(4) == 0 ? analytic_calibration(rng) : random_calibration(rng);
    const int64_t candidates = skewed(rng, 3);
    for (int64_t i = 0; i < candidates; ++i) {
      instance.candidates.push_back(
          random_strategy(rng, instance.world_size, instance.calibration.options.model.layers()));
    }
    int64_t longest = std::min<int64_t>(1 << 17, planner_of(instance, {}).max_len_tokens());
    if (longest == 0) continue;  // the model does not fit
    if (rng.below(2) == 0) longest = rng.between(1, longest);
    if (rng.below(8) == 0) propose(rng, instance, longest);
    for (const int64_t length : random_lengths(rng, longest)) {
      const auto document = static_cast<int64_t>(instance.sequences.size());
      instance.sequences.push_back({.document = document, .length_tokens = length});
    }
    return instance;
  }
}

// The same plan by every thread, or InputError; nothing when no candidate that may be chosen holds the batch.
std::optional<Json> plan_of(const Instance& instance, const plan::PlannerOptions& options, int64_t step,
                            int64_t threads) {
  const plan::Planner planner = planner_of(instance, options);
  const auto once = [&]() -> std::optional<Json> {
    const auto plan = planner.try_plan(step, instance.sequences);
    return plan ? std::optional(to_json(*plan)) : std::nullopt;
  };
  std::vector<std::future<std::optional<Json>>> others;
  for (int64_t i = 1; i < threads; ++i) others.push_back(std::async(std::launch::async, once));
  std::optional<Json> result = once();
  for (auto& other : others) {
    if (other.get() != result) throw base::InputError("threads that plan at the same time differ");
  }
  return result;
}

struct Choice {
  const char* name;
  plan::PlannerOptions options;
};

bool has_lanes(const Strategy& strategy) {
  return std::ranges::any_of(strategy.pipelines,
                             [](const strategy::Pipeline& pipeline) { return pipeline.scheme.cp > 1; });
}

std::vector<Choice> choices(const Instance& instance) {
  const int last = static_cast<int>(instance.candidates.size()) - 1;
  std::vector<Choice> choices = {{"ours", {}},
                                 {"quick", {.effort = plan::Effort::kQuick}},
                                 {"fixed", {.selection = plan::Selection::kFixed, .fixed_candidate = last}}};
  if (std::ranges::none_of(instance.candidates, has_lanes)) {  // the published planning knows none
    choices.push_back({"paper", {.method = published::paper({.dispatch = {.trials = 10}})}});
  }
  return choices;
}

Json candidate_json(const Strategy& strategy) {
  Json pipelines = Json::array();
  for (const strategy::Pipeline& pipeline : strategy.pipelines) {
    pipelines.push_back({{"scheme", to_text(pipeline.scheme)}, {"ranks", pipeline.ranks}});
  }
  return pipelines;
}

Json line_of(uint64_t seed, int64_t threads) {
  const Instance instance = random_instance(seed);
  std::vector<strategy::Scheme> schemes;
  Json candidates = Json::array();
  for (const Strategy& strategy : instance.candidates) {
    candidates.push_back(candidate_json(strategy));
    for (const strategy::Pipeline& pipeline : strategy.pipelines) schemes.push_back(pipeline.scheme);
  }
  std::ranges::sort(schemes);
  schemes.erase(std::ranges::unique(schemes).begin(), schemes.end());
  Json plans = Json::array();
  std::vector<std::future<std::optional<Json>>> results;
  const auto policy = threads > 1 ? std::launch::async : std::launch::deferred;
  const std::vector<Choice> all = choices(instance);
  for (const Choice& choice : all) {
    results.push_back(std::async(policy, [&] { return plan_of(instance, choice.options, 3, threads); }));
  }
  for (size_t i = 0; i < all.size(); ++i) {
    if (const auto plan = results[i].get()) plans.push_back({{"choice", all[i].name}, {"plan", *plan}});
  }
  Json lengths = Json::array();
  for (const strategy::Sequence& sequence : instance.sequences) lengths.push_back(sequence.length_tokens);
  Json calibration = to_json(instance.calibration, schemes, instance.world_size);
  const cost::CostModel cost(instance.calibration.options);
  for (const auto& [tp, kinds] : instance.calibration.options.kinds_by_tp) {
    const cost::MemoryCost memory(cost, {.tp = tp});
    calibration["memory"]["transient_bytes_by_tp"][std::to_string(tp)] =
        memory.bytes_of(1) - memory.held_bytes_per_token();
  }
  return {{"instance", seed},
          {"world_size", instance.world_size},
          {"calibration", std::move(calibration)},
          {"candidates", candidates},
          {"proposed", instance.proposed},
          {"lengths", lengths},
          {"plans", plans}};
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const auto value = i + 1 < argc ? base::parse_integer(argv[i + 1]) : std::nullopt;
    int64_t* target = name == "--count"     ? &options.count
                      : name == "--seed"    ? &options.seed
                      : name == "--threads" ? &options.threads
                                            : nullptr;
    if (!value || target == nullptr) {
      throw base::InputError("usage: plan_instances [--count N] [--seed S] [--threads T]");
    }
    *target = *value;
  }
  return options;
}

}  // namespace
}  // namespace sluice::checker

int main(int argc, char** argv) {
  try {
    const sluice::checker::Options options = sluice::checker::parse(argc, argv);
    for (int64_t i = 0; i < options.count; ++i) {
      std::cout << sluice::checker::line_of(static_cast<uint64_t>(options.seed + i), options.threads).dump()
                << "\n";
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
