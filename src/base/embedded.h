// Files that the library carries within itself; cmake/Embed.cmake writes what this function returns.
#pragma once

#include <vector>

#include "base/embedded_file.h"

namespace sluice::base {

// data/renames.tsv.
const std::vector<EmbeddedFile>& rename_files();

}  // namespace sluice::base
