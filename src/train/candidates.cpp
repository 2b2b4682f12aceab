#include "train/candidates.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "config/planning_inputs.h"
#include "config/strategy_file.h"
#include "plan/offload.h"
#include "plan/proposal.h"
#include "published/paper_plan.h"

namespace sluice::train {

namespace {

void check_against_model(const strategy::Strategy& candidate, const model::Shape& shape) {
  for (const strategy::Pipeline& pipeline : candidate.pipelines) {
    const std::string fault = model::tp_fault(shape, pipeline.scheme.tp);
    if (!fault.empty()) {
      throw base::InputError(base::text("strategy ", strategy::to_text(candidate), ": ", fault));
    }
    if (pipeline.scheme.pp > shape.layers) {
      throw base::InputError(base::text("strategy ", strategy::to_text(candidate), ": ", pipeline.scheme.pp,
                                        " stages for ", shape.layers, " layers: lower pp"));
    }
  }
}

std::vector<std::vector<int64_t>> sample_batches(const Data& data, int count) {
  corpus::Sampler sampler = data.sampler();
  std::vector<std::vector<int64_t>> batches;
  for (int i = 0; i < count; ++i) {
    std::vector<int64_t>& lengths = batches.emplace_back();
    for (const corpus::Sample& sample : sampler.next().samples) lengths.push_back(sample.length_tokens);
  }
  return batches;
}

// In which order a step's batch may be planned: full and a share are for all micro-batches, auto for those
// that need it. Offloading stands before recomputing where it costs no time.
std::vector<strategy::MemoryPolicy> memory_policies(const config::MemoryConfig& memory) {
  strategy::MemoryPolicy first{.recompute = memory.recompute == "full"};
  if (const auto share = base::parse_number(memory.offload)) {
    first.offload_permille = static_cast<int>(std::lround(*share * 1000));
  }
  std::vector<strategy::MemoryPolicy> policies{first};
  if (memory.recompute == "auto") policies.push_back({true, first.offload_permille});
  return policies;
}

plan::PlannerOptions planner_options(const config::RunConfig& config, int world_size,
                                     std::vector<strategy::Strategy> candidates, const cost::CostModel& cost,
                                     int64_t longest_sequence) {
  plan::PlannerOptions options;
  options.world_size = world_size;
  options.candidates = std::move(candidates);
  options.policies = memory_policies(config.memory);
  if (config.memory.offload == "auto") {
    const auto hidden = plan::hidden_offload(cost.under(options.policies.front()), options.candidates,
                                             world_size, longest_sequence);
    if (hidden) options.policies.insert(options.policies.begin() + 1, *hidden);
  }
  if (config.parallel.method == "paper") {
    options.method = published::paper(
        {.dispatch = {.seed = static_cast<uint64_t>(config.data.seed), .tie_rule = plan::TieRule::kFirst}});
  }
  if (config.parallel.select == "best") return options;
  if (config.parallel.select == "cycle") {
    options.selection = plan::Selection::kCycle;
    return options;
  }
  options.selection = plan::Selection::kFixed;
  options.fixed_candidate = static_cast<int>(*base::parse_integer(config.parallel.select));
  if (options.fixed_candidate >= static_cast<int>(options.candidates.size())) {
    throw base::InputError(base::text("[config] parallel.select is ", options.fixed_candidate,
                                      ", but there are ", options.candidates.size(),
                                      " in parallel.strategies, counted from 0: choose a smaller one"));
  }
  return options;
}

void refuse_small_host(const plan::Planner& planner, int world_size, int64_t longest_sequence) {
  const plan::PlannerOptions& options = planner.options();
  const cost::CostModel cost = planner.cost().under(options.policies.back());
  const int64_t needed = plan::host_bytes_for(cost, options.candidates, world_size, longest_sequence);
  const int64_t has = cost.options().memory.host_bytes;
  if (has == 0 || needed <= has) return;
  throw base::InfeasibleError(base::text(
      "offloading a sequence of ", longest_sequence, " tokens takes ", base::human_bytes(needed),
      " of host memory a rank, which may use ", base::human_bytes(has),
      ": raise memory.host_gib, lower memory.offload, raise tp or pp, or run fewer ranks a machine"));
}

// Under the first policy under which the context is held.
std::vector<strategy::Strategy> propose(const plan::ProposalOptions& options, const cost::CostModel& cost,
                                        const std::vector<strategy::MemoryPolicy>& policies) {
  for (size_t i = 0; i + 1 < policies.size(); ++i) {
    try {
      return plan::strategies_of(plan::propose(options, cost.under(policies[i])));
    } catch (const base::InfeasibleError&) {
    }
  }
  return plan::strategies_of(plan::propose(options, cost.under(policies.back())));
}

}  // namespace

std::vector<strategy::Strategy> configured_strategies(const config::RunConfig& config, int world_size) {
  std::vector<strategy::Strategy> candidates =
      config::read_strategies(config.parallel.strategies, world_size);
  for (const strategy::Strategy& candidate : candidates) check_against_model(candidate, *config.model.shape);
  return candidates;
}

std::vector<int> tensor_parallel_degrees(const config::RunConfig& config, int world_size) {
  std::set<int> degrees;
  for (const strategy::Strategy& candidate : configured_strategies(config, world_size)) {
    for (const strategy::Pipeline& pipeline : candidate.pipelines) degrees.insert(pipeline.scheme.tp);
  }
  if (degrees.empty()) {
    for (int tp = 1; tp <= world_size; tp *= 2) {
      if (model::tp_fault(*config.model.shape, tp).empty()) degrees.insert(tp);
    }
  }
  return {degrees.begin(), degrees.end()};
}

plan::Planner make_planner(const config::RunConfig& config, const Data& data, const cost::CostModel& cost,
                           int world_size) {
  std::vector<strategy::Strategy> candidates = configured_strategies(config, world_size);
  if (candidates.empty()) {
    plan::ProposalOptions proposal;
    proposal.world_size = world_size;
    proposal.context_length = data.longest_sequence();
    proposal.max_strategies = 4;
    proposal.max_cp = config.parallel.max_cp;
    proposal.sample_batches = sample_batches(data, 4);
    candidates = propose(proposal, cost, memory_policies(config.memory));
  }
  plan::Planner planner(
      planner_options(config, world_size, std::move(candidates), cost, data.longest_sequence()), cost);
  if (planner.max_len_tokens() < data.longest_sequence()) {
    refuse_small_host(planner, world_size, data.longest_sequence());
    throw base::InfeasibleError(base::text(
        "the corpus has sequences of ", data.longest_sequence(), " tokens, but no strategy holds more than ",
        planner.max_len_tokens(),
        ": raise tp, pp or cp (parallel.max_cp), give memory.device_gib, set memory.recompute = \"auto\" or "
        "data.context_length"));
  }
  return planner;
}

}  // namespace sluice::train
