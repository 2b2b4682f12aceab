// A run's planner options, from its configuration, and the machine that it names.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"
#include "cost/calibration.h"
#include "session/candidates.h"
#include "session/data.h"
#include "strategy/cluster.h"

namespace sluice::session {

// The configuration's strategies, parsed and checked against the number of ranks and the model; empty for
// "auto". InputError naming the strategy and the fault, or lanes that the configured method does not know.
// REQUIRES: config.model.resolved, as all functions below.
std::vector<strategy::Strategy> configured_strategies(const config::RunConfig& config, int world_size);

// The TP degrees that calibration must cover: the configured strategies', or all that "auto" may propose.
std::vector<int> tensor_parallel_degrees(const config::RunConfig& config, int world_size);

// The options in the sections parallel and memory. On clusters other than "local" offload may save lanes. For
// "local" the caller decides, who knows the device: a CPU's memory is the host's. InputError as
// configured_strategies, and for an unknown method.
plan::PlannerOptions planner_options(const config::RunConfig& config, int world_size);

// The same machine with costs for a run's data: heads take the time of tokens with a loss, and stages are cut
// by the times of its sequences if parallel.stages asks for it.
cost::CostModel cost_of_data(const config::RunConfig& config, const Data& data, const cost::CostModel& cost);

// The same for its corpora and these devices of the machine, for a planner with cost_of_data().
plan::PlannerOptions planner_options(const config::RunConfig& config, const Data& data,
                                     const cost::CostModel& machine, int world_size,
                                     std::vector<strategy::Device> devices = {});

// The cluster of the section [cluster], a preset or a file; on "local" nodes have parallel.gpus_per_node
// devices. A device has memory.device_gib less memory.margin_gib if configured, else nine tenths of the
// cluster's. `ranks`: 0 for all of its devices, or on "local" as many as the strategies use.
struct RunMachine {
  strategy::Cluster cluster;
  int world_size = 1;
  cost::Calibration calibration;
  std::vector<strategy::Device> devices = {};  // by rank, if the cluster's nodes differ
};

struct RunMachineOptions {
  int ranks = 0;
  std::string calibration;  // a file, a shipped fit or "analytic"; empty: the configuration's
};

// The machine without measuring: calibrations "auto" and "analytic" are assumed rates of the cluster in the
// configured precision. InputError naming key and value, as for training.
RunMachine machine_of(const config::RunConfig& config, const RunMachineOptions& options);

// Whether the cluster is the machine that the run starts on.
bool is_local(const config::ClusterConfig& cluster);

}  // namespace sluice::session
