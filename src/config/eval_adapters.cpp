#include "config/eval_adapters.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace sluice::config {

using base::InputError;
using base::text;

std::vector<NamedFolder> named_folders(const std::vector<std::string>& entries) {
  std::vector<NamedFolder> all;
  for (const std::string& entry : entries) {
    const size_t end = entry.find('=');
    if (end == std::string::npos || end == 0 || end + 1 == entry.size())
      throw InputError(text("train.eval_adapters has '", entry, "': give NAME=FOLDER"));
    NamedFolder named{entry.substr(0, end), entry.substr(end + 1)};
    if (std::ranges::find(all, named.name, &NamedFolder::name) != all.end()) {
      throw InputError(
          text("train.eval_adapters names '", named.name, "' twice: give each folder a name of its own"));
    }
    all.push_back(std::move(named));
  }
  return all;
}

}  // namespace sluice::config
