// The share of a long sequence to offload, and the lanes that it then takes (ByteScale, eq. 3).
#pragma once

#include <cstdint>
#include <span>

#include "cost/cost_model.h"
#include "strategy/strategy.h"

namespace sluice::plan {

// A sequence of s tokens on lanes that hold C each.
struct OffloadProblem {
  int64_t layers = 0;            // on a rank
  int64_t sequence_bytes = 0;    // Act(s): what one layer keeps of the sequence
  int64_t lane_bytes = 0;        // Act(C): what one layer keeps of a full lane
  int64_t layer_ns = 0;          // T(s): a layer's forward, if one lane did it
  int64_t host_bytes_per_s = 0;  // per lane, in the slower direction
};

struct OffloadChoice {
  int permille = 0;   // r in thousandths
  int64_t lanes = 0;  // D(r)
  bool operator==(const OffloadChoice&) const = default;
};

// D(r) = ceil((2·Act(s) + (1 − r)(l − 2)·Act(s)) / (l·Act(C))): all but the last two layers offload.
// REQUIRES: layers and lane_bytes > 0.
int64_t lanes_of_offload(const OffloadProblem& problem, int permille);

// The smallest r that needs as few lanes as the largest one that a layer's forward hides,
// T(s) >= r·Act(s) ÷ bandwidth; 0 where that saves no lane.
OffloadChoice choose_offload(const OffloadProblem& problem);

// The largest share, in thousandths and multiples of a twentieth, whose copies
// a layer's forward hides under every scheme of the strategies. Lanes are full
// of short sequences, which hide least. 0: not even a twentieth is hidden.
int hidden_permille(const cost::CostModel& cost, std::span<const strategy::Strategy> strategies,
                    int world_size);

// The least host memory per rank with which some pipeline of the strategies would
// hold a sequence of `length` tokens under the model's policy; 0: no amount suffices.
int64_t host_bytes_for(const cost::CostModel& cost, std::span<const strategy::Strategy> strategies,
                       int world_size, int64_t length);

}  // namespace sluice::plan
