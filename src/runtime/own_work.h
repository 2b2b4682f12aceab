// What a rank computed in a step, apart from waiting for others, beside what was planned for it. Ranks do
// different work by design, but measured over planned is comparable.
#pragma once

#include <cstdint>

#include "graph/step_graph.h"
#include "runtime/step_timing.h"

namespace sluice::runtime {

struct OwnWork {
  int64_t computed_ns = 0;
  int64_t planned_ns = 0;  // 0: nothing that can be told apart from waiting
};

// Of the forwards and backwards that `timing` measured. `waited_ns`: what they waited inside for other ranks,
// where that is counted (comm/counted_waits.h). Otherwise (-1, on GPUs) cells of one rank alone count, which
// wait for nobody.
OwnWork own_work(const graph::StepGraph& graph, const StepTiming& timing, int64_t waited_ns);

}  // namespace sluice::runtime
