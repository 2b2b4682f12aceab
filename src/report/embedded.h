// Files that the library carries within itself; cmake/Embed.cmake writes what these functions return.
#pragma once

#include <vector>

#include "base/embedded_file.h"

namespace sluice::report {

using base::EmbeddedFile;

// style.css and timeline.js.
const std::vector<EmbeddedFile>& page_files();

}  // namespace sluice::report
