// Files of the repository that are part of this module (cmake/Embed.cmake).
#pragma once

#include <string>
#include <vector>

namespace sluice::session {

struct EmbeddedFile {
  std::string name;  // without its ending
  std::string content;
};

// data/models.json.
const std::vector<EmbeddedFile>& model_files();

}  // namespace sluice::session
