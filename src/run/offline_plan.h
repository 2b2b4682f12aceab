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
  std::vector<session::TrunkPlanning> others = {};  // models beside the trained one
  int64_t beside_bytes = 0;                         // session::bytes_beside
};

// What a run of this configuration would plan with, on the cluster that it names (session::machine_of);
// "local" is this machine, which the ranks share where memory.device_gib is 0. Calibration "auto" becomes
// "analytic", since nothing is measured here. `ranks` = 0: all devices of the cluster; on "local" as many as
// the configured strategies use. InputError as Trainer, also on "local" without ranks where strategies are
// "auto". REQUIRES: config.model.shape.
OfflinePlanning offline_planning(config::RunConfig config, int ranks,
                                 const corpus::IndexedOptions& corpora = {});

// As Trainer::describe_first_step, of a run that does not take place.
std::string describe_first_step(const OfflinePlanning& planning);

}  // namespace sluice::run
