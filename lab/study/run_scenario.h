// The scenario of a run configuration: the steps of `train`, on the cluster that the configuration names.
#pragma once

#include <cstdint>
#include <string>

#include "config/run_config.h"
#include "study/scenario.h"

namespace sluice::study {

struct RunScenarioOptions {
  int ranks = 0;            // 0: all devices of the configured cluster, or those of the strategies on "local"
  std::string calibration;  // a file, a shipped fit or "analytic"; empty: the configuration's
  int64_t steps = 20;
  int max_cp = 0;  // most lanes of a pipeline; 0: parallel.max_cp
};

// The batches that training draws from the configured corpora, from its first step on, on the machine that
// session::machine_of finds. Sluice proposes, chooses and plans by the configuration. InputError naming key
// and value, as for training; InfeasibleError as scenario_of. REQUIRES: config.model.resolved
// (config::resolve_model).
Scenario scenario_of_run(const config::RunConfig& config, const RunScenarioOptions& options);

}  // namespace sluice::study
