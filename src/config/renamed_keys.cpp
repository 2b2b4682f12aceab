#include "config/renamed_keys.h"

#include <optional>
#include <vector>

#include "base/error.h"
#include "base/renames.h"
#include "base/text.h"
#include "config/toml_section.h"

namespace sluice::config {
namespace {

using base::text;

// A name in a table row: "section.key", or "section.key = value" if a value was renamed.
struct Name {
  std::string section;
  std::string key;
  std::string value;

  std::string path() const { return section + "." + key; }
};

Name name_of(const std::string& written) {
  constexpr std::string_view kEquals = " = ";
  const size_t equals = written.find(kEquals);
  const std::string path = written.substr(0, equals);
  const size_t dot = path.find('.');
  return {.section = path.substr(0, dot),
          .key = path.substr(dot + 1),
          .value = equals == std::string::npos ? "" : written.substr(equals + kEquals.size())};
}

struct KeyRename {
  Name before;
  Name now;
};

std::vector<KeyRename> key_renames() {
  std::vector<KeyRename> found;
  for (const base::Rename& row : base::renames()) {
    if (row.kind == "key") found.push_back({name_of(row.old_name), name_of(row.name)});
  }
  return found;
}

const toml::node* node_of(const toml::table& root, const Name& name) {
  const toml::table* section = root[name.section].as_table();
  return section == nullptr ? nullptr : section->get(name.key);
}

// The current name of a value of the key `now`; none: the value was not renamed.
std::optional<std::string> value_now(const toml::node& value, const std::string& now) {
  const auto written = value.value_exact<std::string>();
  for (const KeyRename& rename : key_renames()) {
    if (!rename.before.value.empty() && written == rename.before.value && rename.now.path() == now)
      return rename.now.value;
  }
  return std::nullopt;
}

std::string renamed_key(const KeyRename& rename, const toml::node& value) {
  const auto other = value_now(value, rename.now.path());
  const std::string with = other ? text(": write ", rename.now.path(), " = \"", *other, "\"") : "";
  return text(rename.before.path(), " is now ", rename.now.path(), with);
}

}  // namespace

void refuse_old_names(const toml::table& root, const std::string& file) {
  std::string place;
  std::vector<std::string> faults;
  const auto add = [&](const toml::node& node, std::string fault) {
    if (faults.empty()) place = place_of(file, node);
    faults.push_back(std::move(fault));
  };
  for (const KeyRename& rename : key_renames()) {
    if (rename.before.value.empty()) {
      if (const toml::node* node = node_of(root, rename.before)) add(*node, renamed_key(rename, *node));
      continue;
    }
    const toml::node* node = node_of(root, rename.now);
    if (node == nullptr || node->value_exact<std::string>() != rename.before.value) continue;
    add(*node, text(rename.now.path(), " = \"", rename.before.value, "\" is now \"", rename.now.value, "\""));
  }
  if (faults.empty()) return;
  throw base::InputError(
      text("[config] ", place, ": ", base::join(faults, "; "), " (`sluice keys renamed` lists all)"));
}

void translate_old_names(toml::table& root) {
  for (const KeyRename& rename : key_renames()) {
    if (!rename.before.value.empty()) continue;
    const toml::node* node = node_of(root, rename.before);
    if (node == nullptr) continue;
    if (!root.contains(rename.now.section)) root.insert(rename.now.section, toml::table{});
    if (toml::table* section = root[rename.now.section].as_table()) section->insert(rename.now.key, *node);
    root[rename.before.section].as_table()->erase(rename.before.key);
  }
  for (const KeyRename& rename : key_renames()) {
    const toml::node* node = rename.before.value.empty() ? nullptr : node_of(root, rename.now);
    if (node != nullptr && node->value_exact<std::string>() == rename.before.value)
      root[rename.now.section].as_table()->insert_or_assign(rename.now.key, rename.now.value);
  }
}

}  // namespace sluice::config
