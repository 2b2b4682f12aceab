// What a rank measured of a step.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "graph/fsdp_moves.h"
#include "runtime/waits.h"

namespace sluice::runtime {

// When a node ran, in nanoseconds since the step began on this rank.
struct Measurement {
  int node = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t held_bytes = 0;  // by the rank's tensors behind it; 0: not counted (GPUs, whose nodes end later)
  int64_t waited_ns = 0;   // of a cell: inside, for other ranks; 0 on GPUs, where that is not counted
  int awaited_rank = -1;   // of a transfer or round: whom it waited for longest; −1: nobody knows
};

struct StepTiming {
  std::vector<Measurement> nodes;      // in program order
  std::vector<graph::FsdpMove> moves;  // beside them, where lanes share parameters; none on GPUs
  int64_t step_ns = 0;                 // with what the engine does around the nodes
  int64_t compute_ns = 0;              // inside compute nodes
  Waits stalled;                       // compute stream waiting between nodes for other streams or peers
  std::map<int, int64_t> stalled_for;  // of that, by world rank: for whom; what nobody knows is left out
  int64_t pull_push_exposed_ns = 0;    // that a link round was behind the compute stream, for pull or push
  int64_t overhead_ns() const { return step_ns - compute_ns - stalled.sum(); }
};

}  // namespace sluice::runtime
