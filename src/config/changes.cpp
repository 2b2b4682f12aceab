#include "config/changes.h"

#include <toml++/toml.h>

#include <charconv>
#include <sstream>

#include "base/text.h"

namespace sluice::config {

namespace {

// Numbers as short as they read back to themselves.
std::string to_text(const toml::node* value) {
  if (value == nullptr) return "not set";
  if (const toml::table* table = value->as_table()) {
    std::vector<std::string> parts;
    for (const auto& [key, part] : *table) parts.push_back(base::text(key.str(), " = ", to_text(&part)));
    return base::text("{", base::join(parts, ", "), "}");
  }
  if (const toml::array* list = value->as_array()) {
    std::vector<std::string> parts;
    for (const toml::node& part : *list) parts.push_back(to_text(&part));
    return base::text("[", base::join(parts, ", "), "]");
  }
  if (value->is_floating_point()) {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, value->as_floating_point()->get(),
                                   std::chars_format::general)
                         .ptr;
    return {digits, end};
  }
  std::ostringstream out;
  value->visit([&](const auto& node) { out << node; });
  return out.str();
}

}  // namespace

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
  const std::string phases_before = to_text(before.get("phase"));
  const std::string phases_after = to_text(after.get("phase"));
  if (phases_before != phases_after) {
    lines.push_back(base::text("phase is ", phases_after, ", was ", phases_before));
  }
  for (const auto& [section, keys] : after) {
    if (!keys.is_table()) continue;
    // A key stands in both, except for those of [model]: hf, or the keys of a shape.
    toml::table both = *before[section].as_table();
    for (const auto& [key, value] : *keys.as_table()) both.insert_or_assign(key, value);
    for (const auto& [key, unused] : both) {
      const std::string was = to_text(before[section].as_table()->get(key));
      const std::string is = to_text(keys.as_table()->get(key));
      if (was != is) lines.push_back(base::text(section.str(), ".", key.str(), " is ", is, ", was ", was));
    }
  }
  return lines;
}

}  // namespace sluice::config
