// Files of cli/completion/ inside the program: one for each shell, with its name (cmake/Embed.cmake).
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
