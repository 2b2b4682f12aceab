// A rank's computation in a step, measured and planned, without waiting for others. Ranks do different work
// by design, but measured over planned is comparable.
#pragma once

#include <cstdint>

#include "graph/step_graph.h"
#include "runtime/step_timing.h"

namespace sluice::runtime {

struct MeasuredWork {
  int64_t measured_ns = 0;
  int64_t planned_ns = 0;  // 0: no work that is separable from waiting

  int64_t slowdown_ppm() const {
    if (planned_ns <= 0) return 0;
    return static_cast<int64_t>(1e6 * static_cast<double>(measured_ns) / static_cast<double>(planned_ns));
  }
  MeasuredWork& operator+=(const MeasuredWork& other) {
    measured_ns += other.measured_ns;
    planned_ns += other.planned_ns;
    return *this;
  }
};

struct OwnWork {
  MeasuredWork attention;  // forwards, backwards planned to spend more than half of their time in attention
  MeasuredWork gemms;      // all other cells
  MeasuredWork copies;     // to and from host memory
  MeasuredWork update;     // the optimizer's
  MeasuredWork cells() const { return MeasuredWork(attention) += gemms; }
};

// Compares times in `timing`, without cells' waits for other ranks, with the times planned for ranks of
// slowdown 100 %.
OwnWork own_work(const graph::StepGraph& graph, const StepTiming& timing);

}  // namespace sluice::runtime
