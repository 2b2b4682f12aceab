// Finds settings that are valid each but unlikely to be meant together.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace sluice::config {

// One line for each doubtful combination, with its keys and values, such as a schedule that does not fit the
// run, or evaluations without data. The run keeps to its configuration all the same.
std::vector<std::string> doubts(const RunConfig& config);

}  // namespace sluice::config
