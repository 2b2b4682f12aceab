// What the cost model of a baseline says otherwise than that of Sluice: the same machine, another program.
#pragma once

#include <cstdint>
#include <vector>

#include "cost/cost_model.h"

namespace sluice::study {

// The same times in plain 1F1B: input and weight gradient in one cell.
cost::CostModel one_backward_cell(const cost::CostModel& cost);

// What ZeRO shards over all ranks: kOne optimiser states, kTwo gradients as well, kThree parameters as well.
enum class ZeroStage { kOne = 1, kTwo = 2, kThree = 3 };

struct UlyssesOptions {
  int world_size = 1;
  ZeroStage zero = ZeroStage::kOne;
  bool recompute = false;  // keep only each layer's input
};

// Every stage, without and with recompute.
std::vector<UlyssesOptions> ulysses_choices(int world_size);

// A model that knows one scheme family, <1,1,k>: a group of k ranks on which Ulysses cuts sequences for all
// but attention, and heads for attention, with all-to-alls between them. REQUIRES: k divides the heads
// (heads_fault).
//
// Times: those of <1,1,1> for a rank's share; a published table without such a row has one derived
// (cost/derived_rows.h).
// All-to-all time comes on top (cost::LaneExchange::kAllToAll). With `recompute` the backward pass repeats
// the forward pass; a token keeps its input of each layer, and one layer's activations are transient. Memory:
// what ZeRO shards is given back to the device, less the buffers that DeepSpeed's defaults take for it (1 GB
// of gradients from kTwo on; 2 GB of gathered parameters at kThree).
cost::CostModel ulysses_cost(const cost::CostModel& cost, const UlyssesOptions& options);

// The largest Ulysses group, a power of two that divides the heads, on at most `most_ranks`.
int most_ulysses_ranks(const cost::CostModel& cost, int most_ranks);

// How long the links are busy with ZeRO's own collectives in a micro-batch: gradients are scattered (from
// kTwo on), parameters gathered for the forward and again for the backward pass (kThree), each once around a
// hierarchical ring that uses all links of a node. `first_ns`: in a step's first micro-batch, for which the
// step graph gathers and scatters once (pull and push).
struct ZeroTimes {
  int64_t first_ns = 0;
  int64_t later_ns = 0;
};
ZeroTimes zero_times(const cost::CostModel& cost, const UlyssesOptions& options);

}  // namespace sluice::study
