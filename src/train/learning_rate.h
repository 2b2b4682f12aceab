// Learning-rate schedule: linear warm-up, then cosine, linear or constant decay.
#pragma once

#include <cstdint>

#include "config/run_config.h"

namespace sluice::train {

// Of step `step` (from 0) of `steps`: lr·(step+1)/warmup_steps while warming up; afterwards from lr at the
// end of warm-up to min_lr at the last step.
double learning_rate(const config::OptimizerConfig& optimizer, int64_t step, int64_t steps);

}  // namespace sluice::train
