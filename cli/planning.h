// What plan, propose and simulate share: options that name cluster, model, calibration, lengths and
// strategies, and the planner made from them.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "plan/planner.h"
#include "session/phased_sampler.h"
#include "session/planning_inputs.h"
#include "session/rollout_schemes.h"
#include "session/trunk_planning.h"

namespace sluice::cli {

// Adds the options of planning without a run configuration, and returns them.
std::vector<CLI::Option*> add_planning_options(CLI::App& command, session::PlanningOptions& options);

// --strategies, which `what` says what for.
CLI::Option* add_strategies_option(CLI::App& command, session::PlanningOptions& options,
                                   const std::string& what);

// A planner and what it plans for.
struct Planning {
  plan::Planner planner;
  session::PhasedSampler sampler;
  // Of a run that goes on when ranks are lost: steps between its snapshots, 0 for what they cost decides.
  std::optional<int64_t> snapshot_every = std::nullopt;
  // Of a run that learns from its rollouts.
  struct Rollout {
    session::RolloutSchemes generation;
    std::vector<inference::RequestLengths> load;  // as it is expected
    int64_t updates = 1;
    bool shares_prompts = false;
  };
  std::optional<Rollout> rollout = std::nullopt;
  // Models beside the trained one, and what a rank owns of them and of a reference.
  std::vector<session::TrunkPlanning> others = {};
  int64_t beside_bytes = 0;
  // The peak of all devices, by data sheets (strategy/device_peaks.h); none: not known.
  std::optional<double> peak_flops_per_ns = std::nullopt;
};

// With the inputs' strategies, or proposed ones where none are given.
Planning planning_of(const session::PlanningOptions& options, const std::string& method);

struct RunPlanningOptions {
  std::string config;
  std::vector<std::string> settings;
  int ranks = 0;            // 0: as many as the configured strategies use
  std::string calibration;  // empty: the configuration's
  std::string method;       // empty: the configuration's
};

// Adds --config, --set and --ranks, explained by `ranks`, none of which goes together with `inputs`.
void add_run_options(CLI::App& command, RunPlanningOptions& run, const std::string& ranks,
                     const std::vector<CLI::Option*>& inputs);

// The planner of a run configuration. Only where the program is built with libtorch, which knows the machine.
Planning planning_of_run(const RunPlanningOptions& options);

// Says on stderr that the model's costs are counted, where nobody computes it.
void log_counted(const model::Shape& shape);

// Says on stderr that strategies will be proposed for the inputs.
void log_proposing(const session::PlanningInputs& inputs);

}  // namespace sluice::cli
