// Files embedded in the library; cmake/Embed.cmake generates the function's definition.
#pragma once

#include <vector>

#include "base/embedded_file.h"

namespace sluice::base {

// The one file data/renames.tsv.
const std::vector<EmbeddedFile>& rename_files();

}  // namespace sluice::base
