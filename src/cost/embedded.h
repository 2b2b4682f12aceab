// Files that the library carries within itself; cmake/Embed.cmake writes what these functions return.
#pragma once

#include <vector>

#include "base/embedded_file.h"

namespace sluice::cost {

using base::EmbeddedFile;

// data/calibrations/*.json, by name.
const std::vector<EmbeddedFile>& calibration_files();
// data/rates/rates.json.
const std::vector<EmbeddedFile>& rate_files();

}  // namespace sluice::cost
