// Files that the library carries within itself; cmake/Embed.cmake writes what this function returns.
#pragma once

#include <string>
#include <vector>

namespace sluice::base {

struct EmbeddedFile {
  std::string name;  // without its ending
  std::string content;
};

// data/renames.tsv.
const std::vector<EmbeddedFile>& rename_files();

}  // namespace sluice::base
