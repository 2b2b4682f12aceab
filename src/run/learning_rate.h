// Learning-rate schedule: linear warm-up, then what optimizer.decay says.
#pragma once

#include <cstdint>

#include "config/run_config.h"

namespace sluice::run {

// Of step `step` (from 0) of `steps`: lr·(step+1)/warmup_steps while warming up; afterwards from lr at the
// end of warm-up to min_lr at the last step: by half a cosine, on a line, or not at all (constant); wsd stays
// at lr and goes on a line in its last steps (Hu et al., MiniCPM, 2024); inverse_sqrt is
// lr·√(warmup_steps/(step+1)), which does not depend on `steps`, and never below min_lr (Vaswani et al.,
// 2017).
double learning_rate(const config::OptimizerConfig& optimizer, int64_t step, int64_t steps);

}  // namespace sluice::run
