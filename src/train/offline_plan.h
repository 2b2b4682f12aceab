// Plans a step of a run without running it.
#pragma once

#include <cstdint>

#include "config/run_config.h"
#include "strategy/step_plan.h"

namespace sluice::train {

struct OfflinePlanOptions {
  int64_t step = 0;
  int ranks = 0;  // 0: as many as the configured strategies use
};

// The step plan that a run of this configuration would make, with its calibration; "auto" becomes "analytic",
// since nothing is measured here. Ranks are taken to share this machine where memory.device_gib is 0.
// InputError as Trainer, also without ranks where strategies are "auto". REQUIRES: config.model.shape.
strategy::StepPlan plan_offline(config::RunConfig config, const OfflinePlanOptions& options);

}  // namespace sluice::train
