// Rows at the border below a stage that wait: those that have arrived, or whose memory is ready for them,
// before their forward; and gradients between their backward and the end of their transfer.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "graph/lane_order.h"

namespace sluice::graph {

// Rows of one rank's training step. A receiver makes memory ready once all nodes of its own that must end before
// the transfer have ended (runtime/local_program.h).
class WaitingRows {
 public:
  // No rank's: nothing waits.
  WaitingRows() = default;
  WaitingRows(const StepGraph& graph, const LaneOrder& order, int stage);

  // The most bytes that may wait while the rank runs its cell of this number, in any order in which other
  // ranks may run. bytes_of(pass): those of the rank's rows of that pass.
  int64_t most_bytes(int cell, const std::function<int64_t(int)>& bytes_of) const;

 private:
  // They may wait while the cells [first, end) run.
  struct Arrival {
    int pass = 0, first = 0, end = 0;
    int sent_before = 0;  // transfers of the stage's gradients that must have ended before
  };
  struct Departure {
    int pass = 0, first = 0, end = 0;
    int number = 0;  // among the stage's transfers of gradients
  };
  std::vector<Arrival> arrivals_;  // in order of arrival
  std::vector<Departure> departures_;
};

}  // namespace sluice::graph
