#include "cost/shipped.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "cost/embedded.h"

namespace sluice::cost {

std::vector<std::string> shipped_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : calibration_files()) names.push_back(file.name);
  std::ranges::sort(names);
  return names;
}

Calibration shipped(const std::string& name) {
  for (const EmbeddedFile& file : calibration_files()) {
    if (file.name == name) return calibration_from_json(base::parse_json(file.content, name), name);
  }
  throw base::InputError(base::text("no calibration '", name, "' is shipped: choose ",
                                    base::join(shipped_names(), ", "), " or a calibration.json"));
}

Calibration find_calibration(const std::string& source) {
  if (std::ranges::count(shipped_names(), source) > 0 || !std::filesystem::exists(source)) {
    return shipped(source);
  }
  return calibration_from_json(base::read_json(source), source);
}

}  // namespace sluice::cost
