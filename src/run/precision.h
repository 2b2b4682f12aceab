// In which number formats a run computes.
#pragma once

#include "config/run_config.h"
#include "runtime/precision.h"

namespace sluice::run {

runtime::Precision precision_of(const config::TrainConfig& train);

}  // namespace sluice::run
