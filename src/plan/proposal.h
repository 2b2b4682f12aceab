// Candidate strategies for `strategies = "auto"`: a small search over what a cluster can be cut into, judged
// by planning sample batches.
#pragma once

#include <cstdint>
#include <vector>

#include "cost/cost_model.h"
#include "strategy/strategy.h"

namespace sluice::plan {

struct ProposalOptions {
  int world_size = 1;
  int64_t context_length = 0;
  int max_strategies = 4;
  int dispatch_trials = 10;  // enough to compare strategies
  uint64_t seed = 1;
  // Lengths of sequences of sample batches, such as training will see.
  std::vector<std::vector<int64_t>> sample_batches;
};

// Every strategy that is considered: for schemes of power-of-two TP and PP that the model can be cut into and
// the calibration knows, as many pipelines as fit; and mixes of two schemes, the larger on a power of two of
// pipelines and the smaller on the remaining ranks. Larger pipelines come first, so that blocks of ranks are
// aligned; TP stays inside a node.
std::vector<strategy::Strategy> enumerate_strategies(const cost::CostModel& cost, int world_size);

// At most max_strategies of them, a greedy portfolio: first the one with the least estimated time over the
// samples among those that hold the context length, then the one that lowers the sum of each sample's best
// estimate most, while any does; the rest are filled by their own estimates. Never empty.
// InfeasibleError naming the context length and the longest that any strategy holds.
std::vector<strategy::Strategy> propose(const ProposalOptions& options, const cost::CostModel& cost);

}  // namespace sluice::plan
