// Settings that are each within their range and together are hardly what was meant.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace sluice::config {

// A line for each, with the keys and their values: a schedule that does not fit the run, an evaluation of
// nothing. They change nothing: what is configured is what runs.
std::vector<std::string> doubts(const RunConfig& config);

}  // namespace sluice::config
