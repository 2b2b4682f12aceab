// What a planner is asked for: how candidates are found and chosen among, and what for.
#pragma once

#include <cstdint>
#include <vector>

#include "cost/cost_model.h"
#include "plan/memory_choice.h"
#include "plan/planner.h"
#include "session/methods.h"
#include "strategy/strategy.h"

namespace sluice::session {

// How candidates are found, chosen among and planned with.
struct PlannerChoices {
  std::vector<strategy::Strategy> strategies;  // the candidates; empty: they are proposed
  MethodPtr method = plan::ours();             // of proposing, too
  int max_strategies = 8;                      // that are proposed
  int max_cp = 0;    // most lanes of their pipelines; 0: as many as the method plans
  bool fsdp = true;  // whether these may share parameters
  plan::Selection selection = plan::Selection::kBest;
  int fixed_candidate = 0;  // of kFixed
  // Tried in order; empty: the cost model's. Where lanes divide experts all of them make visits again, where
  // by plans of sample batches steps then end sooner.
  std::vector<strategy::MemoryPolicy> policies;
  // Where no candidate holds the context under the first of them: which shares of it may grow until one does,
  // at the least time (plan/memory_choice.h). For methods that plan shared parameters.
  plan::Savings saves{.recompute = true, .offload = true};
  // The first of them offloads a share that is always hidden, where by plans of sample batches steps then end
  // sooner: lanes hold more, so that fewer do. For method ours; without sample batches it does nothing.
  bool offload_saves_lanes = false;
  cost::ExchangeSet exchanges;  // of micro-batches on several lanes
};

// Who says that devices differ: a cluster's description, or the ranks' own time for a product, in which there
// is noise.
enum class DeviceSource : uint8_t { kDescribed, kMeasured };

// What all that is done for.
struct PlanningTask {
  int world_size = 1;
  cost::CostModel cost;
  int64_t context_length = 0;  // some candidate has to hold a sequence of so many tokens
  // Lengths by batch, sample_batches(): to propose with, and to choose by what steps add to schedules.
  std::vector<std::vector<int64_t>> sample_batches;
  uint64_t seed = 1;
  PlannerChoices choices;
  std::vector<strategy::Device> devices = {};  // by rank; empty: alike
  DeviceSource devices_from = DeviceSource::kDescribed;
};

}  // namespace sluice::session
