// Times that a rank measured in a step.
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
  int64_t held_bytes = 0;  // by the rank's tensors after the node; 0: not counted (GPUs: nodes end later)
  int64_t waited_ns = 0;   // cells: time waited inside for other ranks
  int awaited_rank = -1;   // transfers, rounds: the rank that it waited for longest; −1: unknown
};

struct StepTiming {
  std::vector<Measurement> nodes;      // in program order
  std::vector<graph::FsdpMove> moves;  // FSDP transfers beside the nodes; empty on GPUs
  int64_t step_ns = 0;                 // including the engine's work around the nodes
  int64_t compute_ns = 0;              // inside compute nodes
  Waits stalled;                       // compute stream waiting between nodes for other streams or peers
  std::map<int, int64_t> stalled_for;  // part of `stalled` by awaited world rank, where known
  int64_t pull_push_exposed_ns = 0;    // time from a free compute stream to the end of a link round
  int64_t overhead_ns() const { return step_ns - compute_ns - stalled.sum(); }
};

}  // namespace sluice::runtime
