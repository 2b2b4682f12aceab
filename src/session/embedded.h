// Files of the repository that are part of this module (cmake/Embed.cmake).
#pragma once

#include <vector>

#include "base/embedded_file.h"

namespace sluice::session {

using base::EmbeddedFile;

// data/models.json.
const std::vector<EmbeddedFile>& model_files();

}  // namespace sluice::session
