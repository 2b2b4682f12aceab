// Which ranks say texts together: pipelines, of TP ranks and stages, that have the model each, and what a
// load of texts takes on them. More ranks a pipeline read its matrices faster and hold more texts; fewer have
// fewer collectives to wait for. Lanes have a cache between them: for prompts that one doesn't hold.
#pragma once

#include <climits>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "inference/engine_steps.h"
#include "inference/kv_cache_capacity.h"
#include "strategy/strategy.h"

namespace sluice::inference {

// Why lanes of such a pipeline cannot have the cache between them: those that share parameters have none of
// their own to compute with. Empty: they can.
std::string lanes_fault(const strategy::Scheme& scheme);

// Of the fullest stage's ranks.
int64_t parameter_bytes(const cost::CostModel& cost, const strategy::Scheme& scheme);

// What a rank has for texts.
struct KvCacheBudget {
  double cache_bytes = 0;
  int64_t max_num_seqs = 256;  // under way at once
};

// On what level of the topology the ranks of such pipelines meet.
int ranks_level(const cost::CostModel& cost, const strategy::Scheme& scheme);

// How a pipeline's scheduler goes about so many texts, none longer than `longest`: no more pages than those
// take, at most what the room holds.
SchedulerOptions scheduler_options(const ModelSharding& cut, const KvCacheBudget& room, int64_t texts,
                                   int64_t longest);

// Texts so long may be said by lanes, or take more than another layout's cache holds.
inline constexpr int64_t kLongSequenceTokens = 8192;

// Schemes of pipelines that say texts, all alike: of each that divides the ranks, cuts the model and leaves
// of `room_bytes` a rank something beside its parameters. One-stage pipelines have lanes in a node, too.
// Those of fewest ranks first; never none where any scheme cuts the model so far (then the one with the least
// parameters a rank).
std::vector<strategy::Scheme> generation_schemes(const cost::CostModel& cost, int world_size,
                                                 int64_t room_bytes);

struct GenerationLayout {
  strategy::Scheme scheme;
  int pipelines = 1;
  int64_t pull_ns = 0;
  int64_t generation_ns = 0;  // of the slowest pipeline
  int64_t engine_steps = 0;   // likewise
  int64_t preemptions = 0;    // of all
  int64_t ns() const { return pull_ns + generation_ns; }
  strategy::Strategy strategy() const;
};

// The requests dealt to the scheme's pipelines in turn, of which so many are looked at. REQUIRES:
// cost.decodes(scheme), a load. InputError when the cache cannot hold the longest text.
GenerationLayout simulate_generation(const cost::CostModel& cost, const strategy::Scheme& scheme,
                                     std::span<const RequestLengths> load, const KvCacheBudget& room,
                                     int world_size, int most_pipelines = INT_MAX);
// Of each scheme whose passes are known and whose cache holds the longest text, of several lanes if that is a
// long one; the fastest first, of equal
// ones that of fewer ranks a pipeline. Empty: of none.
std::vector<GenerationLayout> generation_layouts(const cost::CostModel& cost,
                                                 std::span<const strategy::Scheme> schemes,
                                                 std::span<const RequestLengths> load,
                                                 const KvCacheBudget& room, int world_size,
                                                 int most_pipelines = INT_MAX);

}  // namespace sluice::inference
