// The terminal's text when a training run ends.
#pragma once

#include <string>

#include "report/run_data.h"

namespace sluice::report {

// Lines on all of the run's steps: losses of the first and last ten, validation, strategies used and how
// often, tokens per second, prediction error, exposed link time. REQUIRES: a training run with steps.
std::string closing_summary(const RunData& run);

}  // namespace sluice::report
