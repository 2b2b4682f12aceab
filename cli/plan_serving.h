// sluice plan --serving: the layouts in which a cluster can serve a model.
#pragma once

#include <CLI/CLI.hpp>
#include <vector>

#include "inference/serving.h"
#include "session/planning_inputs.h"

namespace sluice::cli {

struct ServingArguments {
  bool serving = false;
  inference::Demand demand;
  double between_ms = 50;
};

// Adds --serving and its options.
void add_serving_options(CLI::App& command, ServingArguments& arguments,
                         const std::vector<CLI::Option*>& of_steps);

// Prints the table, or JSON.
void plan_serving(const session::PlanningOptions& options, const ServingArguments& arguments, bool json);

}  // namespace sluice::cli
