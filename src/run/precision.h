// The number formats that a run computes in.
#pragma once

#include "config/run_config.h"
#include "runtime/precision.h"

namespace sluice::run {

runtime::Precision precision_of(const config::TrainConfig& train);

}  // namespace sluice::run
