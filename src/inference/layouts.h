// Layouts for generation: pipelines of TP ranks and stages, each with the whole model, and the time that
// they take for given requests. More ranks per pipeline read matrices faster and hold more sequences; fewer
// have cheaper collectives. Lanes share one KV cache, for prompts that a single rank's cache cannot hold.
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

// The reason why lanes of such a pipeline cannot share one KV cache: with FSDP
// a lane has no whole parameters of its own to compute with. Empty: they can.
std::string lanes_fault(const strategy::Scheme& scheme);

// Bytes per rank on the fullest stage.
int64_t parameter_bytes(const cost::CostModel& cost, const strategy::Scheme& scheme);

// A rank's memory for sequences.
struct KvCacheBudget {
  double cache_bytes = 0;
  int64_t max_num_seqs = 256;  // running sequences
};

// The level of the topology that the ranks of such pipelines span.
int ranks_level(const cost::CostModel& cost, const strategy::Scheme& scheme);

// Scheduler options of one pipeline for `texts` sequences of at most `longest`
// tokens: as many KV blocks as these need, and at most as many as fit `room`.
SchedulerOptions scheduler_options(const ModelSharding& cut, const KvCacheBudget& room, int64_t texts,
                                   int64_t longest);

// Longer sequences may need lanes, or more cache than some layouts have.
inline constexpr int64_t kLongSequenceTokens = 8192;

// Schemes for equal pipelines that generate: all that divide the ranks, cut the
// model and leave part of `room_bytes` per rank beside the parameters. One-stage
// pipelines also have lanes within a node. Fewest ranks come first. If no scheme
// leaves room, the one with the least parameters per rank is returned.
std::vector<strategy::Scheme> generation_schemes(const cost::CostModel& cost, int world_size,
                                                 int64_t room_bytes);

struct GenerationLayout {
  strategy::Scheme scheme;
  int pipelines = 1;
  int64_t pull_ns = 0;
  int64_t generation_ns = 0;  // the slowest pipeline's
  int64_t engine_steps = 0;   // the slowest pipeline's
  int64_t preemptions = 0;    // all pipelines'
  int64_t ns() const { return pull_ns + generation_ns; }
  strategy::Strategy strategy() const;
};

// Deals requests to the scheme's pipelines in turn and simulates `most_pipelines` of them.
// REQUIRES: cost.decodes(scheme), a load. InputError if the cache cannot hold the longest sequence.
GenerationLayout simulate_generation(const cost::CostModel& cost, const strategy::Scheme& scheme,
                                     std::span<const RequestLengths> load, const KvCacheBudget& room,
                                     int world_size, int most_pipelines = INT_MAX);
// One layout for each scheme whose engine steps can be priced and whose cache holds the
// longest sequence. Schemes with several lanes are included for long sequences only. The
// fastest comes first; ties go to fewer ranks per pipeline. Empty: no scheme qualifies.
std::vector<GenerationLayout> generation_layouts(const cost::CostModel& cost,
                                                 std::span<const strategy::Scheme> schemes,
                                                 std::span<const RequestLengths> load,
                                                 const KvCacheBudget& room, int world_size,
                                                 int most_pipelines = INT_MAX);

}  // namespace sluice::inference
