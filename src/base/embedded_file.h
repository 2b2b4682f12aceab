// A file that is embedded in the program (cmake/Embed.cmake).
#pragma once

#include <string>

namespace sluice::base {

struct EmbeddedFile {
  std::string name;  // without its extension
  std::string content;
};

}  // namespace sluice::base
