#include "inference/layouts.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "cost/parameter_counts.h"
#include "inference/engine_step_clock.h"

namespace sluice::inference {
namespace {

int64_t longest_of(std::span<const RequestLengths> load) {
  int64_t longest = 0;
  for (const RequestLengths& request : load) longest = std::max(longest, request.prompt + request.max_tokens);
  return longest;
}

ModelSharding cut_of(const cost::CostModel& cost, const strategy::Scheme& scheme) {
  return {cost.program(), scheme.tp, scheme.pp, cost.options().memory.element_bytes, scheme.cp};
}

std::vector<RequestLengths> dealt(std::span<const RequestLengths> load, int pipeline, int pipelines) {
  std::vector<RequestLengths> own;
  for (size_t i = static_cast<size_t>(pipeline); i < load.size(); i += static_cast<size_t>(pipelines))
    own.push_back(load[i]);
  return own;
}

}  // namespace

std::string lanes_fault(const strategy::Scheme& scheme) {
  if (scheme.fsdp == 1 || scheme.ep > 1) return "";
  return base::text(
      to_text(scheme), " has ", scheme.cp,
      " lanes, which share parameters: generation needs lanes that each have all parameters, as <", scheme.tp,
      ",", scheme.pp, ",", scheme.cp, "> does, or that divide experts alone, as <", scheme.tp, ",", scheme.pp,
      ",", scheme.cp, ",", scheme.cp, ",", scheme.cp, "> does");
}

int64_t parameter_bytes(const cost::CostModel& cost, const strategy::Scheme& scheme) {
  const cost::MemoryModel& memory = cost.options().memory;
  int64_t fullest = 0;
  for (int stage = 0; stage < scheme.pp; ++stage) {
    int64_t elements = 0;
    for (const int bucket : cost.program().buckets_of(cost.stage_run(scheme, stage))) {
      const int64_t whole = cost::bucket_elements(cost.program(), memory, bucket, scheme.tp);
      const bool of_experts = cost.program().buckets()[static_cast<size_t>(bucket)].of_experts;
      const int64_t own = of_experts ? cost.in_expert_slots(scheme, whole) : whole;
      // Parts come from the owners first, and stay while all parts are gathered from them.
      const int lanes = of_experts ? scheme.expert_fsdp() : scheme.fsdp;
      elements += own + (lanes > 1 ? (own + lanes - 1) / lanes : 0);
    }
    fullest = std::max(fullest, elements);
  }
  return fullest * memory.element_bytes;
}

int ranks_level(const cost::CostModel& cost, const strategy::Scheme& scheme) {
  return cost.options().topology.level_of_any(scheme.ranks());
}

SchedulerOptions scheduler_options(const ModelSharding& cut, const KvCacheBudget& room, int64_t texts,
                                   int64_t longest) {
  const int64_t most_texts = std::clamp<int64_t>(texts, 1, room.max_num_seqs);
  const int64_t held = kv_blocks_in(cut, room.cache_bytes, most_texts);
  bool states = false;
  for (int stage = 0; stage < cut.stages; ++stage) states = states || cache_of(cut, stage).sequence > 0;
  return {.kv_blocks = std::min(held, (longest / kKvBlockTokens + 1) * most_texts),
          .max_num_seqs = most_texts,
          .stages = cut.stages,
          .shares_prompts = !states};
}

namespace {

// Adds schemes whose lanes divide the experts, for models that no TP degree or stages can hold.
void add_divided_experts(const cost::CostModel& cost, int world_size, int64_t room_bytes,
                         std::vector<strategy::Scheme>& schemes) {
  const model::Model& model = cost.options().model;
  for (int tp = 1; tp <= world_size && world_size % tp == 0; tp *= 2) {
    if (!model::tp_fault(model, tp).empty()) break;
    for (int lanes = 2; tp * lanes <= world_size && world_size % (tp * lanes) == 0; lanes *= 2) {
      const strategy::Scheme scheme{.tp = tp, .cp = lanes, .fsdp = lanes, .ep = lanes};
      const bool divides = model.experts().count > 0 && model::experts_fault(model, lanes).empty();
      if (divides && parameter_bytes(cost, scheme) < room_bytes) schemes.push_back(scheme);
    }
  }
}

}  // namespace

std::vector<strategy::Scheme> generation_schemes(const cost::CostModel& cost, int world_size,
                                                 int64_t room_bytes) {
  const model::Model& model = cost.options().model;
  const int node_ranks = cost.options().topology.node_ranks();
  std::vector<strategy::Scheme> schemes;
  strategy::Scheme least;
  for (int tp = 1; tp <= node_ranks && world_size % tp == 0; tp *= 2) {
    if (!model::tp_fault(model, tp).empty()) break;
    for (int pp = 1; world_size % (tp * pp) == 0; pp *= 2) {
      if (!model::pp_fault(model, pp).empty()) break;
      const strategy::Scheme scheme{.tp = tp, .pp = pp};
      const int64_t bytes = parameter_bytes(cost, scheme);
      if (bytes < room_bytes) schemes.push_back(scheme);
      for (int cp = 2; pp == 1 && tp * cp <= node_ranks && world_size % (tp * cp) == 0; cp *= 2) {
        const strategy::Scheme lanes{.tp = tp, .pp = 1, .cp = cp};
        if (bytes < room_bytes) schemes.push_back(lanes);
      }
      if (bytes < parameter_bytes(cost, least)) least = scheme;
    }
  }
  if (schemes.empty()) add_divided_experts(cost, world_size, room_bytes, schemes);
  if (schemes.empty()) schemes.push_back(least);
  // TP inside a node first.
  std::ranges::sort(schemes, {}, [](const strategy::Scheme& scheme) {
    return std::tuple(scheme.ranks(), scheme.cp, scheme.pp);
  });
  return schemes;
}

strategy::Strategy GenerationLayout::strategy() const {
  return strategy::parse_strategy(base::text(pipelines, "x", to_text(scheme)), pipelines * scheme.ranks());
}

GenerationLayout simulate_generation(const cost::CostModel& cost, const strategy::Scheme& scheme,
                                     std::span<const RequestLengths> load, const KvCacheBudget& room,
                                     int world_size, int most_pipelines) {
  SLUICE_ASSERT(cost.decodes(scheme), "passes of unknown cost");
  GenerationLayout layout{.scheme = scheme, .pipelines = world_size / scheme.ranks()};
  layout.pull_ns =
      cost.exchange_ns(parameter_bytes(cost, scheme), cost.options().topology.level_of_first(world_size));
  const int64_t longest = longest_of(load);
  for (int pipeline = 0; pipeline < std::min(layout.pipelines, most_pipelines); ++pipeline) {
    const std::vector<RequestLengths> own = dealt(load, pipeline, layout.pipelines);
    int64_t texts = 0;
    for (const RequestLengths& request : own) texts += std::ssize(request.output_lens);
    const SchedulerOptions options = scheduler_options(cut_of(cost, scheme), room, texts, longest);
    const EngineSteps engine_steps = engine_steps_of(own, options, cost.window());
    EngineStepClock clock(cost, scheme, ranks_level(cost, scheme));
    for (const cost::DecodeWork& work : engine_steps.work) clock.add(work);
    layout.preemptions += engine_steps.preemptions;
    if (clock.ns() < layout.generation_ns) continue;
    layout.generation_ns = clock.ns();
    layout.engine_steps = engine_steps.count;
  }
  return layout;
}

std::vector<GenerationLayout> generation_layouts(const cost::CostModel& cost,
                                                 std::span<const strategy::Scheme> schemes,
                                                 std::span<const RequestLengths> load,
                                                 const KvCacheBudget& room, int world_size,
                                                 int most_pipelines) {
  std::vector<GenerationLayout> layouts;
  for (const strategy::Scheme& scheme : schemes) {
    if (!cost.decodes(scheme) || (scheme.cp > 1 && scheme.ep == 1 && longest_of(load) < kLongSequenceTokens))
      continue;
    const int64_t held = scheduler_options(cut_of(cost, scheme), room, 1, longest_of(load)).kv_blocks;
    if (held < kv_blocks_for(longest_of(load) - 1)) continue;
    layouts.push_back(simulate_generation(cost, scheme, load, room, world_size, most_pipelines));
  }
  std::ranges::stable_sort(layouts, {}, &GenerationLayout::ns);
  return layouts;
}

}  // namespace sluice::inference
