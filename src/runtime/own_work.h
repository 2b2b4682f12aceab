// What a rank computed in a step, apart from waiting for others, beside what was planned for it. Ranks do
// different work by design, but measured over planned is comparable.
#pragma once

#include <cstdint>

#include "graph/step_graph.h"
#include "runtime/step_timing.h"

namespace sluice::runtime {

struct MeasuredWork {
  int64_t measured_ns = 0;
  int64_t planned_ns = 0;  // 0: nothing that can be told apart from waiting

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
  MeasuredWork attention;  // forwards and backwards that spend more than half of their time there, as planned
  MeasuredWork gemms;      // the others
  MeasuredWork copies;     // to and from host memory
  MeasuredWork update;     // of the optimiser
  MeasuredWork cells() const { return MeasuredWork(attention) += gemms; }
};

// Of what `timing` measured, without what cells waited inside for other ranks, beside what ranks of a pace of
// 100 take. Where that is not counted
// (`waits_are_counted` false, on GPUs), cells of one rank alone count, which wait for nobody.
OwnWork own_work(const graph::StepGraph& graph, const StepTiming& timing, bool waits_are_counted);

}  // namespace sluice::runtime
