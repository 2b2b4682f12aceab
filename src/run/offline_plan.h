// Plans steps of a run without running them.
#pragma once

#include <vector>

#include "config/run_config.h"
#include "corpus/sampler.h"
#include "plan/planner.h"
#include "session/data.h"
#include "session/trunk_planning.h"

namespace sluice::run {

struct OfflinePlanning {
  plan::Planner planner;
  session::Data data;
  std::vector<session::TrunkPlanning> others = {};  // trunks beside the trained model
  int64_t beside_bytes = 0;                         // session::bytes_beside
};

// The planner and data of a run of this configuration, on the cluster that it names (session::machine_of).
// "local" is this machine; its ranks share the memory if memory.device_gib is 0. Calibration "auto" becomes
// "analytic", since nothing is measured here. `ranks` = 0: all devices of the cluster; on "local" as many as
// the configured strategies use. InputError as Trainer, and on "local" without ranks if strategies are
// "auto". REQUIRES: config.model.resolved.
OfflinePlanning offline_planning(config::RunConfig config, int ranks,
                                 const corpus::IndexedOptions& corpora = {});

// As Trainer::describe_first_step, for a run that does not take place.
std::string describe_first_step(const OfflinePlanning& planning);

}  // namespace sluice::run
