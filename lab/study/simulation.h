// Simulates a system's steps: each batch's step plan becomes the step graph that training would run, timed by
// its clock and checked by its verifier. The graph is evaluated instead of executed.
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
  std::set<int64_t> timeline_steps;          // steps with kept timelines
  std::function<void()> after_step = [] {};  // for progress
  bool explains_wire = false;
  std::optional<double> peak_flops_per_ns = {};  // sum over all devices; nullopt: no MFU
  OtherActs* others = nullptr;  // models that run before each step's update; null: none
};

struct Simulation {
  report::SystemRun run;
  std::vector<report::Timeline> timelines;         // at timeline_steps, ascending
  std::vector<report::ExplainedCompression> wire;  // for the first step, if requested
};

// One record per batch, in their order; the caller sets name, title and configuration of the run. One graph
// exists at a time. A pure function of its inputs. Throws what the system throws, and InfeasibleError if a
// step needs more memory than a device has; both name the step.
Simulation simulate(System& system, const std::vector<corpus::Batch>& batches,
                    const model::ParameterTable& table, const SimulationOptions& options);

}  // namespace sluice::study
