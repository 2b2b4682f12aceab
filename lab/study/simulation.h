// Runs a system's steps in simulation: each batch's step plan becomes the step graph that training would run,
// timed by its clock and proved by its verifier, and the graph is read instead of run.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "corpus/sampler.h"
#include "model/parameters.h"
#include "report/run_data.h"
#include "study/other_acts.h"
#include "study/system.h"

namespace sluice::study {

struct SimulationOptions {
  int world_size = 1;
  std::set<int64_t> timeline_steps;          // whose timelines are kept
  std::function<void()> after_step = [] {};  // for progress
  bool explains_wire = false;
  std::optional<double> peak_flops_per_ns = {};  // of all devices together; none: no MFU
  OtherActs* others = nullptr;  // what runs in front of each step's update; null: nothing
};

struct Simulation {
  report::SystemRun run;
  std::vector<report::Timeline> timelines;         // of the asked steps, ascending
  std::vector<report::ExplainedCompression> wire;  // of the first step, where it is asked for
};

// One record a batch, in their order; name, title and configuration of the run are the caller's. One graph
// lives at a time. A pure function of its inputs. Throws what the system throws, and InfeasibleError when a
// step needs more memory than a device has, both naming the step.
Simulation simulate(System& system, const std::vector<corpus::Batch>& batches,
                    const model::ParameterTable& table, const SimulationOptions& options);

}  // namespace sluice::study
