#include "base/renamed_json.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/renames.h"

namespace sluice::base {
namespace {

void rename_within(Json& json, const std::vector<const Rename*>& rows) {
  if (json.is_object()) {
    for (const Rename* row : rows) {
      const auto found = json.find(row->old_name);
      if (found == json.end() || json.contains(row->name)) continue;
      Json value = std::move(*found);
      json.erase(found);
      json[row->name] = std::move(value);
    }
  }
  if (!json.is_structured()) return;
  for (Json& each : json) rename_within(each, rows);
}

}  // namespace

void take_new_names(Json& json, std::string_view where) {
  std::vector<const Rename*> rows;
  for (const Rename& row : renames()) {
    if (row.kind == "json" && std::ranges::find(row.where, where) != row.where.end()) rows.push_back(&row);
  }
  rename_within(json, rows);
}

}  // namespace sluice::base
