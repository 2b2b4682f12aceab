// Shared by plan, propose and simulate: options that name cluster, model, calibration, lengths and
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

// Adds --strategies; its help says `what` it is for.
CLI::Option* add_strategies_option(CLI::App& command, session::PlanningOptions& options,
                                   const std::string& what);

// Adds an option whose words `parse` knows.
template <typename Value, typename E>
CLI::Option* add_word_option(CLI::App& command, const std::string& name, Value& value,
                             E (*parse)(const std::string&), const std::string& what) {
  const auto read = [&value, parse](const std::string& word) { value = parse(word); };
  return command.add_option_function<std::string>(name, read, what);
}

// A planner and the batches and models that it plans for.
struct Planning {
  plan::Planner planner;
  session::PhasedSampler sampler;
  // For an elastic run: steps between its snapshots; 0: chosen by their cost.
  std::optional<int64_t> snapshot_every = std::nullopt;
  // For a run with rollouts.
  struct Rollout {
    session::RolloutSchemes generation;
    std::vector<inference::RequestLengths> load;  // the expected requests
    int64_t updates = 1;
    bool shares_prompts = false;
  };
  std::optional<Rollout> rollout = std::nullopt;
  // Models beside the trained one, and a rank's owned bytes of these and of a reference.
  std::vector<session::TrunkPlanning> others = {};
  int64_t beside_bytes = 0;
  // The peak of all devices by data sheets (strategy/device_peaks.h); none: not known.
  std::optional<double> peak_flops_per_ns = std::nullopt;
};

// A planning with the inputs' strategies, or with proposed ones if none are given.
Planning planning_of(const session::PlanningOptions& options);

struct RunPlanningOptions {
  std::string config;
  std::vector<std::string> settings;
  int ranks = 0;                               // 0: as many as the configured strategies use
  std::string calibration;                     // empty: the configuration's
  std::optional<strategy::MethodName> method;  // none: the configuration's
};

// Adds --config, --set and --ranks, with `ranks` as the help text. They exclude all of `inputs`.
void add_run_options(CLI::App& command, RunPlanningOptions& run, const std::string& ranks,
                     const std::vector<CLI::Option*>& inputs);

// The planning of a run configuration. It needs libtorch, to ask the machine for its devices.
Planning planning_of_run(const RunPlanningOptions& options);

// Notes on stderr if Sluice only counts the model's costs and cannot compute the model itself.
void log_counted(const model::Model& model);

// Notes on stderr that strategies will be proposed for the inputs.
void log_proposing(const session::PlanningInputs& inputs);

}  // namespace sluice::cli
