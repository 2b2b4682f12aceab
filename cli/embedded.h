// Files of cli/completion/ that are part of the program: one for each shell, called so (cmake/Embed.cmake).
#pragma once

#include <string_view>
#include <vector>

namespace sluice::cli {

struct EmbeddedFile {
  std::string_view stem;
  std::string_view content;
};

const std::vector<EmbeddedFile>& completion_files();

}  // namespace sluice::cli
