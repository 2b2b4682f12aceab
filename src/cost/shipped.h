// Published calibrations that come with the library (data/calibrations): no profile and no path is needed to
// plan for the machines that Hydraulis was measured on. Each names its origin in `source`.
#pragma once

#include <string>
#include <vector>

#include "cost/calibration.h"

namespace sluice::cost {

// "a100-7b", "a800-13b", …: machine and model, sorted.
std::vector<std::string> shipped_names();

// InputError listing the names for another one.
Calibration shipped(const std::string& name);

// The shipped calibration if `source` is its name, otherwise the one in the file of that path. InputError if
// it is neither, or as calibration_from_json.
Calibration find_calibration(const std::string& source);

}  // namespace sluice::cost
