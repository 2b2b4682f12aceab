// What a planner needs beside the costs of machine and model: the candidates, or what they are proposed for,
// and how it chooses among them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cost/exchange_set.h"
#include "plan/known_steps.h"
#include "plan/memory_choice.h"
#include "plan/proposal.h"
#include "plan/seeds.h"
#include "strategy/planning_words.h"
#include "strategy/strategy.h"

namespace sluice::plan {

class Method;                          // plan/planner.h
std::shared_ptr<const Method> ours();  // likewise

using strategy::Selection;

// The source of device differences: a cluster's description, or each rank's measured time for a product,
// which is noisy.
enum class DeviceSource : uint8_t { kDescribed, kMeasured };

struct PlannerOptions {
  int world_size = 1;
  std::vector<strategy::Strategy> candidates;         // session::make_planner proposes them if there are none
  std::shared_ptr<const StepOverhead> step_overhead;  // added to judge strategies; null: 0
  std::shared_ptr<const Method> method = ours();      // also of proposing
  Effort effort = Effort::kFull;                      // for ours()
  Seeds seeds;                                        // for ours()
  Selection selection = Selection::kBest;
  int fixed_candidate = 0;                // for kFixed
  std::vector<strategy::Device> devices;  // by rank; empty: alike
  // A batch that no candidate holds under the first policy is planned under each further one, and the step
  // that ends first by step_overhead's clock is taken (without it, that of the first policy that holds the
  // batch). Empty: the cost model's. With expert parallelism session::make_planner also recomputes dispatched
  // rows under all of them, if that shortens planned steps of sample batches.
  std::vector<strategy::MemoryPolicy> policies;

  // For proposing candidates.
  int64_t context_length = 0;  // some proposed strategy holds a sequence of so many tokens
  // Lengths of sequences by batch, such as training will see; every batch counts the same
  // (plan/batch_sample.h draws them from a corpus's lengths).
  std::vector<std::vector<int64_t>> sample_batches;
  int max_strategies = 8;
  // Most lanes of a pipeline, and most of them that share parameters. In a session 0: as many as the method
  // plans.
  int max_cp = 1;
  int max_fsdp = 1;
  int thoroughness =
      1;  // multiplies the starting points that are improved and the mixes that are planned with

  // Shared by proposals that differ in what gathers take alone; null: each plans all of its own.
  std::shared_ptr<KnownSteps> known_steps = nullptr;

  // Called now and then with the strategies compared and the steps planned so far; null: nobody asks.
  std::function<void(int64_t strategies, int64_t steps)> progress = {};

  // For session::make_planner, which completes the options.
  DeviceSource devices_from = DeviceSource::kDescribed;
  // If no candidate holds the context under the first policy: the shares that may grow until one does, at the
  // least time (plan/memory_choice.h). For methods that plan FSDP.
  Savings saves{.recompute = true, .offload = true};
  // The first policy offloads the share that is always hidden, if that shortens planned steps of sample
  // batches: lanes hold more, so fewer are needed. For ours().
  bool offload_saves_lanes = false;
  cost::ExchangeSet exchanges;  // for micro-batches on several lanes
};

// Strategies of more ranks are compared by coarse plans: thousands of sequences on as many lanes even out.
inline constexpr int kMostThoroughRanks = 512;

// The seeds of plans that compare strategies of so many ranks.
inline Seeds comparing_seeds(const PlannerOptions& options, int ranks) {
  return ranks > kMostThoroughRanks ? kCoarseSeeds : options.seeds;
}

// The options of a planner that compares strategies and plans no run.
inline PlannerOptions for_comparing(PlannerOptions options) {
  options.seeds = comparing_seeds(options, options.world_size);
  if (options.world_size > kMostThoroughRanks) options.effort = Effort::kQuick;
  return options;
}

}  // namespace sluice::plan
