// Learning-rate schedule: linear warm-up, then the decay that optimizer.decay names.
#pragma once

#include <cstdint>

#include "config/run_config.h"

namespace sluice::run {

// The learning rate of step `step` (from 0) of `steps`. Warm-up: lr·(step+1)/warmup_steps. Afterwards it
// goes from lr to min_lr at the last step by half a cosine, linearly, or not at all (constant). Decay
// `wsd` stays at lr and decays linearly in its last steps (Hu et al., MiniCPM, 2024). Decay
// `inverse_sqrt` is lr·√(warmup_steps/(step+1)), whatever `steps` is, and never below min_lr (Vaswani et
// al., 2017).
double learning_rate(const config::OptimizerConfig& optimizer, int64_t step, int64_t steps);

}  // namespace sluice::run
