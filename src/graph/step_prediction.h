// Predicts how long a step will take that is measured on real ranks. The clock gives each rank its usual
// time; here ranks vary, and on machines with more ranks than cores they share these.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "graph/step_graph.h"

namespace sluice::graph {

// The mean makespan, as a multiple of the clock's, if computing takes each rank 1 + `deviation`·z of its
// planned time in a step, with z standard normal and independent between ranks. Ranks that meet wait for the
// slowest. The TP ranks of a lane vary together, because their waits for each other are part of what was
// measured for their cells. Exactly 1 without a deviation. Draws are the same for every graph, in pairs of z
// and −z, so one rank alone keeps its time. REQUIRES: the clock has run; 0 <= deviation.
double expected_stretch(const StepGraph& graph, double deviation);

// Not thread-safe.
class StepPrediction {
 public:
  struct Options {
    int ranks = 1;  // of each machine
    int cores = 0;  // of each machine, if ranks compute on cores that they may share; 0: each has a device
    // Whether prices were measured on these ranks: others, such as analytic ones, are the clock's.
    bool measured = false;
  };

  explicit StepPrediction(const Options& options) : options_(options) {}

  // The step's predicted time, in ns, with the ranks' `deviation` (watch/scatter.h; 0: unknown). Ranks that
  // share cores get no stretch: a late rank has the cores of those that wait for it (graph/shared_cores.h).
  int64_t ns(const StepGraph& graph, double deviation);

 private:
  double stretch(const StepGraph& graph, double deviation);

  Options options_;
  double deviation_ = 0;
  std::map<std::string, double> stretches_;  // at deviation_, by strategy: of the first step that had it
};

}  // namespace sluice::graph
