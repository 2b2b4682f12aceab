// Files that the library carries within itself; cmake/Embed.cmake writes what these functions return.
#pragma once

#include <string>
#include <vector>

namespace sluice::cost {

struct EmbeddedFile {
  std::string name;  // without its ending
  std::string content;
};

// data/calibrations/*.json, by name.
const std::vector<EmbeddedFile>& calibration_files();

}  // namespace sluice::cost
