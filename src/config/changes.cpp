#include "config/changes.h"

#include <toml++/toml.h>

#include "base/text.h"
#include "config/config_file.h"
#include "config/toml_section.h"

namespace sluice::config {

std::vector<std::string> changes(const RunConfig& then, const RunConfig& now) {
  const auto relevant = [](RunConfig config) {
    config.log = {};
    config.train.threads = 0;
    config.train.join_timeout_s = 0;
    return toml::parse(to_toml(config));
  };
  const toml::table before = relevant(then);
  const toml::table after = relevant(now);
  std::vector<std::string> lines;
  const std::string phases_before = shown(before.get("phase"));
  const std::string phases_after = shown(after.get("phase"));
  if (phases_before != phases_after) {
    lines.push_back(base::text("phase is ", phases_after, ", was ", phases_before));
  }
  for (const auto& [section, keys] : after) {
    if (!keys.is_table()) continue;
    // Keys are in both tables, except for those of [model]: hf, or the keys of an outline.
    toml::table both = *before[section].as_table();
    for (const auto& [key, value] : *keys.as_table()) both.insert_or_assign(key, value);
    for (const auto& [key, unused] : both) {
      const std::string was = shown(before[section].as_table()->get(key));
      const std::string is = shown(keys.as_table()->get(key));
      if (was != is) lines.push_back(base::text(section.str(), ".", key.str(), " is ", is, ", was ", was));
    }
  }
  return lines;
}

}  // namespace sluice::config
