#include "base/renames.h"

#include <algorithm>

#include "base/embedded.h"
#include "base/error.h"
#include "base/text.h"

namespace sluice::base {
namespace {

std::vector<Rename> read_table(const std::string& content) {
  std::vector<Rename> rows;
  const std::vector<std::string> lines = split(content, '\n');
  for (size_t i = 1; i < lines.size(); ++i) {  // after the header row
    if (lines[i].empty()) continue;
    const std::vector<std::string> cells = split(lines[i], '\t');
    SLUICE_ASSERT(cells.size() == 5, "a row of renames.tsv has five cells");
    std::vector<std::string> where;
    for (const std::string& place : split(cells[3], ';')) where.emplace_back(trim(place));
    rows.push_back({cells[0], cells[1], cells[2], std::move(where)});
  }
  return rows;
}

bool holds_in(const Rename& row, std::string_view where) {
  return where.empty() || std::ranges::find(row.where, where) != row.where.end();
}

struct Heading {
  const char* kind;
  const char* title;
};
constexpr Heading kHeadings[] = {{"option", "Options"},
                                 {"key", "Keys of a run configuration"},
                                 {"metric", "Metrics"},
                                 {"json", "Keys of JSON, and names of the Python package"},
                                 {"schema", "Schemas"},
                                 {"page", "Pages"},
                                 {"word", "Words of the glossary"},
                                 {"type", "Types of the C++ library"},
                                 {"function", "Functions of the C++ library"},
                                 {"field", "Fields and constants of the C++ library"},
                                 {"file", "Source files"},
                                 {"folder", "Folders"}};

}  // namespace

const std::vector<Rename>& renames() {
  static const std::vector<Rename> rows = read_table(rename_files().front().content);
  return rows;
}

const Rename* renamed(std::string_view kind, std::string_view old_name, std::string_view where) {
  const auto found = std::ranges::find_if(renames(), [&](const Rename& row) {
    return row.kind == kind && row.old_name == old_name && holds_in(row, where);
  });
  return found == renames().end() ? nullptr : &*found;
}

std::string renames_text() {
  std::string out =
      "# Renamed\n\n"
      "These names changed. Options, keys of a run configuration and keys of files that people write are "
      "refused by their\n"
      "old names, with the new one. Files that Sluice wrote under old names, such as run directories and "
      "checkpoints, are\n"
      "still read. `sluice keys renamed` prints this page.\n";
  for (const Heading& heading : kHeadings) {
    std::string rows;
    for (const Rename& row : renames()) {
      if (row.kind == heading.kind)
        rows += text("| `", row.old_name, "` | `", row.name, "` | ", join(row.where, ", "), " |\n");
    }
    if (rows.empty()) continue;
    out += text("\n## ", heading.title, "\n\n| before | now | where |\n|---|---|---|\n", rows);
  }
  return out;
}

}  // namespace sluice::base
