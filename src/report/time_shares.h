// Shares of the time of all ranks in a step.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/step_graph.h"
#include "graph/trace.h"

namespace sluice::report {

// The fields add up to ranks times the step's time.
//
// A rank's time is cut at its cells. Time before a cell counts as `pull_push_ns` until the parameters that
// the cell waits for are there, and as bubble after that. After its last cell a rank is in the bubble until
// its pipeline has ended (drain), idle until all pipelines have, and then exposed to the rest of the pushes.
// A rank without cells is idle until then.
struct TimeShares {
  int64_t compute_ns = 0;      // cells, without the exposed time of exchanges and all-gathers
  int64_t cp_exchange_ns = 0;  // cells waiting for keys and values of other lanes
  int64_t fsdp_ns = 0;         // cells waiting for all-gathers of parameters and reduce-scatters of gradients
  int64_t pull_push_ns = 0;    // waiting for pull or push that overlap does not hide
  int64_t update_ns = 0;       // scalars and optimizer
  int64_t bubble_ns = 0;       // waiting for other stages and lanes of the own pipeline
  int64_t idle_ns = 0;         // without work, or done before other pipelines
  int64_t strategy_switch_ns = 0;  // before the step graph starts: switching strategies
  int64_t total_ns() const {
    return compute_ns + cp_exchange_ns + fsdp_ns + pull_push_ns + update_ns + bubble_ns + idle_ns +
           strategy_switch_ns;
  }
  TimeShares& operator+=(const TimeShares& other);
  bool operator==(const TimeShares&) const = default;
};

// The shares of the timeline that the clock predicts. REQUIRES: the clock has run.
TimeShares time_shares(const graph::StepGraph& graph);

// The shares of a predicted or measured timeline; a step's predicted records give the shares of its graph.
// Exchange and all-gather time of a measured cell are their predicted shares of the cell. Records may come in
// any order; a step lasts from 0 to the end of its last one. All ranks count as one pipeline if cells lack
// the arguments of graph::trace_records. REQUIRES: ranks in [0, world_size).
TimeShares time_shares(const std::vector<graph::TraceRecord>& records, int world_size);

}  // namespace sluice::report
