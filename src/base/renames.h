// Former names of options, keys and metrics: the only table of them is data/renames.tsv. Error messages,
// readers of older files and the page docs/renamed.md use it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::base {

struct Rename {
  std::string kind;  // option, key, metric, json, schema, page or word
  std::string old_name;
  std::string name;                // the current name
  std::vector<std::string> where;  // the commands, files or tables that the rename applies to
};

// All rows, in the table's order.
const std::vector<Rename>& renames();

// The row of a former name; null if there is none. An empty `where` matches rows of any place.
const Rename* renamed(std::string_view kind, std::string_view old_name, std::string_view where = "");

// The table as Markdown for people: docs/renamed.md.
std::string renames_text();

}  // namespace sluice::base
