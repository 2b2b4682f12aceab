// Names that Sluice had before: the one table of them, data/renames.tsv. Refusals, readers of files from
// before and the page docs/renamed.md go by it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::base {

struct Rename {
  std::string kind;  // option, key, metric, json, schema, page or word
  std::string old_name;
  std::string name;                // now
  std::vector<std::string> where;  // the commands, files or tables in which it holds
};

// All rows, in the order of the table.
const std::vector<Rename>& renames();

// The row of an old name; null: there is none. An empty `where` stands for anywhere.
const Rename* renamed(std::string_view kind, std::string_view old_name, std::string_view where = "");

// The old name, in `where`, of a current name; "": it was not renamed.
std::string name_before(std::string_view kind, std::string_view name, std::string_view where);

// The table for people: docs/renamed.md.
std::string renames_text();

}  // namespace sluice::base
