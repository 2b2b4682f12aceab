// Lists the differences between two configurations.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace sluice::config {

// Sorted lines, one for each differing key: "optimizer.lr is 0.001, was 0.0003". [log], train.threads and
// train.join_timeout_s do not affect results and are left out. REQUIRES: both name a model.
std::vector<std::string> changes(const RunConfig& then, const RunConfig& now);

}  // namespace sluice::config
