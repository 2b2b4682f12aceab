// Files that the library carries within itself; cmake/Embed.cmake writes what these functions return.
#pragma once

#include <string>
#include <vector>

namespace sluice::report {

struct EmbeddedFile {
  std::string name;  // without its ending
  std::string content;
};

// style.css and timeline.js.
const std::vector<EmbeddedFile>& page_files();

}  // namespace sluice::report
