// A file that the program carries within itself (cmake/Embed.cmake).
#pragma once

#include <string>

namespace sluice::base {

struct EmbeddedFile {
  std::string name;  // without its ending
  std::string content;
};

}  // namespace sluice::base
