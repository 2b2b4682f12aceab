// The short calibration before a run: times this machine's layers, links and optimiser on the ranks that
// will train, and fits a cost model to them.
//
// All ranks work at once, as they do in training, so what ranks take from each other (cores, memory
// bandwidth) is in the numbers; a schedule with many bubbles runs a little faster than predicted. TP groups
// are real ones, aligned blocks of ranks: waiting for each other is part of a layer's time.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "comm/transport.h"
#include "cost/calibration.h"
#include "model/shape.h"
#include "profile/stage_probe.h"
#include "runtime/precision.h"

namespace sluice::profile {

struct ProbeOptions {
  model::Shape shape;
  runtime::Precision precision;
  c10::Device device = c10::kCPU;
  std::vector<int> tp_degrees{1};
  int64_t context_length = 2048;
  int64_t logits_chunk_bytes = 8 << 20;
  int64_t device_bytes = 0;  // what a rank may use, margin taken off
  int gpus_per_node = 8;
  std::string name = "probe";         // its communicators' names begin so; unique on a transport
  int64_t budget_ns = 3'000'000'000;  // aimed at; a few repetitions are taken whatever they cost
};

// Collective over all ranks; every rank gets rank 0's model, equal to the bit. Call it with the thread count
// of training. InputError when a TP degree cannot cut the shape or exceeds the world size.
cost::Calibration probe(const ProbeOptions& options, comm::Transport& transport);

// The lengths of the micro-batches that are timed: long and short sequences at equal and at different sums.
std::vector<std::vector<int64_t>> probe_lengths(int64_t context_length);

// Layer and end times fitted to what was measured: times[i][r] is repetition r of lengths[i]. The shortest of
// the repetitions are fitted, so that a disturbance of one of them bends nothing; then everything is scaled
// by what the median repetition takes over the shortest, which is the machine's usual load. A weight gradient
// is the fused backward less the input gradient, within half of what it takes on its own. REQUIRES: at least
// one repetition of each.
struct FittedTimes {
  cost::LayerTimes layer;
  cost::EndTimes ends;
};
FittedTimes fit_times(const std::vector<std::vector<int64_t>>& lengths,
                      const std::vector<std::vector<StageTimes>>& times);

}  // namespace sluice::profile
