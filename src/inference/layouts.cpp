#include "inference/layouts.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "cost/parameter_counts.h"
#include "model/pass_rows.h"

namespace sluice::inference {
namespace {

int64_t longest_of(std::span<const Lengths> load) {
  int64_t longest = 0;
  for (const Lengths& request : load) longest = std::max(longest, request.prompt + request.most_tokens);
  return longest;
}

HeldCut cut_of(const cost::CostModel& cost, const strategy::Scheme& scheme) {
  return {cost.program(), scheme.tp, scheme.pp, cost.options().memory.element_bytes, scheme.cp};
}

std::vector<Lengths> dealt(std::span<const Lengths> load, int pipeline, int pipelines) {
  std::vector<Lengths> own;
  for (size_t i = static_cast<size_t>(pipeline); i < load.size(); i += static_cast<size_t>(pipelines))
    own.push_back(load[i]);
  return own;
}

}  // namespace

std::string lanes_fault(const model::Shape& shape, const strategy::Scheme& scheme) {
  if (scheme.cp == 1) return "";
  const std::string name = base::text(to_text(scheme), " has ", scheme.cp, " lanes, ");
  if (scheme.share > 1)
    return base::text(name, "which share parameters: texts are said by lanes that have them each, as <",
                      scheme.tp, ",", scheme.pp, ",", scheme.cp, "> does");
  if (shape.recurrent.key_heads > 0)
    return name + "but states of recurrent layers cannot be divided: give pipelines of one lane";
  if (shape.latent.kv_rank > 0)
    return name + "but narrow keys of latent attention are not divided: give pipelines of one lane";
  return "";
}

int64_t parameter_bytes(const cost::CostModel& cost, const strategy::Scheme& scheme) {
  const cost::MemoryModel& memory = cost.options().memory;
  int64_t fullest = 0;
  for (int stage = 0; stage < scheme.pp; ++stage) {
    int64_t elements = 0;
    for (const int bucket : cost.program().buckets_of(cost.stage_run(scheme, stage)))
      elements += cost::bucket_elements(cost.program(), memory, bucket, scheme.tp);
    fullest = std::max(fullest, elements);
  }
  return fullest * memory.element_bytes;
}

namespace {

cost::DecodeWork of_lane(const strategy::Scheme& scheme, cost::DecodeWork work) {
  const auto divide = [&](cost::Wide& all) { all = (all + scheme.cp - 1) / scheme.cp; };
  for (cost::DecodeWork::Sight* sight : {&work.all, &work.windowed}) {
    divide(sight->keys);
    divide(sight->chunk_keys);
    divide(sight->pairs);
  }
  if (model::cuts_pass(work.rows, scheme.cp)) work.rows = (work.rows + scheme.cp - 1) / scheme.cp;
  return work;
}

// What lanes give each other in every layer of such passes.
int64_t between_lanes_ns(const cost::CostModel& cost, const strategy::Scheme& scheme,
                         const cost::DecodeWork& work, bool in_node) {
  const model::Shape& shape = cost.options().shape;
  const int64_t element_bytes = cost.options().memory.element_bytes;
  const int64_t queries = shape.heads / scheme.tp, keys = (shape.kv_heads + scheme.tp - 1) / scheme.tp;
  const int64_t wide_bytes = std::max<int64_t>(4, element_bytes);
  const bool cut = model::cuts_pass(work.rows, scheme.cp);
  const int64_t own_rows = cut ? (work.rows + scheme.cp - 1) / scheme.cp : work.rows;
  const int64_t others = own_rows * (scheme.cp - 1);
  const int64_t found = cost.exchange_ns(others * queries * (shape.head_dim + 1) * wide_bytes, in_node);
  const int64_t gathered =
      cut ? cost.exchange_ns(others * (queries + 2 * keys) * shape.head_dim * element_bytes, in_node) : 0;
  return work.passes * cost.program().blocks().size() * (found + gathered);
}

}  // namespace

int64_t pass_ns(const cost::CostModel& cost, const strategy::Scheme& scheme, const cost::DecodeWork& work,
                bool in_node) {
  if (scheme.cp > 1) {
    const strategy::Scheme one_lane{.tp = scheme.tp, .pp = scheme.pp};
    return pass_ns(cost, one_lane, of_lane(scheme, work), in_node) +
           between_lanes_ns(cost, scheme, work, in_node);
  }
  int64_t ns = work.passes * (scheme.pp - 1) * cost.transfer_ns(scheme, work.rows, in_node);
  for (int stage = 0; stage < scheme.pp; ++stage)
    ns += cost.decode_ns(scheme, cost.stage_run(scheme, stage), work);
  // The last stage tells the others what was drawn, two numbers a text.
  constexpr int64_t kToldBytes = 16;
  if (scheme.pp > 1) ns += work.passes * cost.exchange_ns(kToldBytes * work.spoken, in_node);
  return ns;
}

SchedulerOptions scheduler_options(const HeldCut& cut, const TextRoom& room, int64_t texts, int64_t longest) {
  const int64_t most_texts = std::clamp<int64_t>(texts, 1, room.most_texts);
  const int64_t held = pages_in(cut, room.cache_bytes, most_texts);
  bool states = false;
  for (int stage = 0; stage < cut.stages; ++stage) states = states || cache_of(cut, stage).text > 0;
  return {.pages = std::min(held, (longest / kPageTokens + 1) * most_texts),
          .most_texts = most_texts,
          .shares_prompts = !states};
}

std::vector<strategy::Scheme> saying_schemes(const cost::CostModel& cost, int world_size,
                                             int64_t room_bytes) {
  const cost::CostModel::Options& machine = cost.options();
  std::vector<strategy::Scheme> schemes;
  strategy::Scheme least;
  for (int tp = 1; tp <= machine.gpus_per_node && world_size % tp == 0; tp *= 2) {
    if (!model::tp_fault(machine.shape, tp).empty()) break;
    for (int pp = 1; world_size % (tp * pp) == 0; pp *= 2) {
      if (!model::pp_fault(machine.shape, pp).empty()) break;
      const strategy::Scheme scheme{.tp = tp, .pp = pp};
      const int64_t bytes = parameter_bytes(cost, scheme);
      if (bytes < room_bytes) schemes.push_back(scheme);
      for (int cp = 2; pp == 1 && tp * cp <= machine.gpus_per_node && world_size % (tp * cp) == 0; cp *= 2) {
        const strategy::Scheme lanes{.tp = tp, .pp = 1, .cp = cp};
        if (bytes < room_bytes && lanes_fault(machine.shape, lanes).empty()) schemes.push_back(lanes);
      }
      if (bytes < parameter_bytes(cost, least)) least = scheme;
    }
  }
  if (schemes.empty()) schemes.push_back(least);
  // TP inside a node first.
  std::ranges::sort(schemes, {}, [](const strategy::Scheme& scheme) {
    return std::tuple(scheme.ranks(), scheme.cp, scheme.pp);
  });
  return schemes;
}

strategy::Strategy SayingLayout::strategy() const {
  return strategy::parse_strategy(base::text(pipelines, "x", to_text(scheme)), pipelines * scheme.ranks());
}

SayingLayout say(const cost::CostModel& cost, const strategy::Scheme& scheme, std::span<const Lengths> load,
                 const TextRoom& room, int world_size, int most_pipelines) {
  SLUICE_ASSERT(cost.decodes(scheme), "passes of unknown cost");
  SayingLayout layout{.scheme = scheme, .pipelines = world_size / scheme.ranks()};
  const int gpus_per_node = cost.options().gpus_per_node;
  const bool in_node = gpus_per_node % scheme.ranks() == 0;
  layout.pulling_ns = cost.exchange_ns(parameter_bytes(cost, scheme), world_size <= gpus_per_node);
  const int64_t longest = longest_of(load);
  for (int pipeline = 0; pipeline < std::min(layout.pipelines, most_pipelines); ++pipeline) {
    const std::vector<Lengths> own = dealt(load, pipeline, layout.pipelines);
    int64_t texts = 0, ns = 0;
    for (const Lengths& request : own) texts += std::ssize(request.said);
    const SchedulerOptions options = scheduler_options(cut_of(cost, scheme), room, texts, longest);
    const Passes passes = passes_of(own, options, cost.window());
    for (const cost::DecodeWork& work : passes.work) ns += pass_ns(cost, scheme, work, in_node);
    layout.evictions += passes.evictions;
    if (ns < layout.saying_ns) continue;
    layout.saying_ns = ns;
    layout.passes = passes.count;
  }
  return layout;
}

std::vector<SayingLayout> saying_layouts(const cost::CostModel& cost,
                                         std::span<const strategy::Scheme> schemes,
                                         std::span<const Lengths> load, const TextRoom& room, int world_size,
                                         int most_pipelines) {
  std::vector<SayingLayout> layouts;
  for (const strategy::Scheme& scheme : schemes) {
    if (!cost.decodes(scheme) || (scheme.cp > 1 && longest_of(load) < kLongTextTokens)) continue;
    const int64_t held = scheduler_options(cut_of(cost, scheme), room, 1, longest_of(load)).pages;
    if (held < pages_for(longest_of(load) - 1)) continue;
    layouts.push_back(say(cost, scheme, load, room, world_size, most_pipelines));
  }
  std::ranges::stable_sort(layouts, {}, &SayingLayout::ns);
  return layouts;
}

}  // namespace sluice::inference
