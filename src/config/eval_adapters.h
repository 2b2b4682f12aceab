// Adapters that evaluations of a run try in place of the trained one.
#pragma once

#include <string>
#include <vector>

namespace sluice::config {

struct NamedFolder {
  std::string name;
  std::string folder;
};
// From entries NAME=FOLDER. InputError for another form, or a name that is given twice.
std::vector<NamedFolder> named_folders(const std::vector<std::string>& entries);

}  // namespace sluice::config
