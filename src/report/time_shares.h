// Where the time of all ranks of a step goes.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/step_graph.h"
#include "graph/trace.h"

namespace sluice::report {

// The fields add up to ranks times the step's time.
//
// A rank's time is cut at its cells. What lies before a cell counts as `link` until the parameters that the
// cell waits for are there, and as `bubble` after that. After its last cell a rank is in the bubble until its
// pipeline has ended (drain), idle until all pipelines have, and then exposed to what is left of the pushes.
// A rank without cells is idle until then.
struct TimeShares {
  int64_t compute_ns = 0;      // cells, without what exchanges and gathers expose
  int64_t cp_exchange_ns = 0;  // cells waiting for keys and values of other lanes
  int64_t fsdp_ns = 0;       // cells waiting for parameters that lanes share, and for sums of their gradients
  int64_t pull_push_ns = 0;  // waiting for pull or push: what overlap does not hide
  int64_t update_ns = 0;     // scalars and optimiser
  int64_t bubble_ns = 0;     // waiting for other stages and lanes of the own pipeline
  int64_t idle_ns = 0;       // without work, or done before other pipelines
  int64_t strategy_switch_ns = 0;  // before the step graph starts: switching strategies
  int64_t total_ns() const {
    return compute_ns + cp_exchange_ns + fsdp_ns + pull_push_ns + update_ns + bubble_ns + idle_ns +
           strategy_switch_ns;
  }
  TimeShares& operator+=(const TimeShares& other);
  bool operator==(const TimeShares&) const = default;
};

// Of the timeline that the clock predicts. REQUIRES: the clock has run.
TimeShares time_shares(const graph::StepGraph& graph);

// Of a predicted or measured timeline: of the same step's predicted records the same. Ring and gather time of
// a measured cell are their predicted shares of the cell. Records may come in any order; the step lasts from
// 0 to the last one's end. Where records of cells lack what graph::trace_records tells (files of other
// programs), all ranks count as one pipeline. REQUIRES: ranks in [0, world_size).
TimeShares time_shares(const std::vector<graph::TraceRecord>& records, int world_size);

}  // namespace sluice::report
