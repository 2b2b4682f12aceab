// What a configuration says otherwise than an earlier one.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace sluice::config {

// "optimizer.lr is 0.001, was 0.0003", a line a key, sorted. [log], train.threads and train.join_timeout_s
// have no say in what is computed and are left out. REQUIRES: both name a model.
std::vector<std::string> changes(const RunConfig& then, const RunConfig& now);

}  // namespace sluice::config
