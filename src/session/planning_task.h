// The task of a planner: what it plans for, and how candidates are found and chosen.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "plan/memory_choice.h"
#include "plan/planner.h"
#include "session/methods.h"
#include "strategy/strategy.h"

namespace sluice::session {

// How candidates are found, chosen and planned with.
struct PlannerChoices {
  std::vector<strategy::Strategy> strategies;  // the candidates; empty: they are proposed
  MethodPtr method = plan::ours();             // also the method of proposing
  int max_strategies = 8;                      // proposed strategies at most
  int max_cp = 0;    // most lanes of proposed pipelines; 0: as many as the method plans
  bool fsdp = true;  // whether proposed pipelines may use FSDP
  plan::Selection selection = plan::Selection::kBest;
  int fixed_candidate = 0;  // used by Selection::kFixed
  // Tried in order; empty: the cost model's. With expert parallelism all of them also recompute dispatched
  // rows, if that shortens planned steps of sample batches.
  std::vector<strategy::MemoryPolicy> policies;
  // If no candidate holds the context under the first policy: the shares that may grow until one does, at the
  // least time (plan/memory_choice.h). For methods that plan FSDP.
  plan::Savings saves{.recompute = true, .offload = true};
  // The first policy offloads the share that is always hidden, if that shortens planned steps of sample
  // batches: lanes hold more, so fewer are needed. For method ours; without sample batches it does nothing.
  bool offload_saves_lanes = false;
  cost::ExchangeSet exchanges;  // for micro-batches on several lanes
};

// The source of device differences: a cluster's description, or each rank's measured time for a product,
// which is noisy.
enum class DeviceSource : uint8_t { kDescribed, kMeasured };

// A planner's task.
struct PlanningTask {
  int world_size = 1;
  cost::CostModel cost;
  int64_t context_length = 0;  // at least one candidate has to hold such a sequence
  // Lengths by batch, sample_batches(): for proposing, and for choosing by the time beyond schedules.
  std::vector<std::vector<int64_t>> sample_batches;
  uint64_t seed = 1;
  PlannerChoices choices;
  std::vector<strategy::Device> devices = {};  // by rank; empty: alike
  DeviceSource devices_from = DeviceSource::kDescribed;
  // Told how far proposing is: "57 strategies compared in 1,204 planned steps". Null: nobody asks.
  std::function<void(const std::string& how_far)> progress = {};
};

}  // namespace sluice::session
