// Plans steps of a run without running them.
#pragma once

#include "config/run_config.h"
#include "corpus/sampler.h"
#include "plan/planner.h"

namespace sluice::train {

struct OfflinePlanning {
  plan::Planner planner;
  corpus::Sampler sampler;  // before the first step
};

// What a run of this configuration would plan with, with its calibration; "auto" becomes "analytic", since
// nothing is measured here. Ranks are taken to share this machine where memory.device_gib is 0; `ranks` = 0:
// as many as the configured strategies use. InputError as Trainer, also without ranks where strategies are
// "auto". REQUIRES: config.model.shape.
OfflinePlanning offline_planning(config::RunConfig config, int ranks);

}  // namespace sluice::train
