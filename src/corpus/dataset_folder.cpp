#include "corpus/dataset_folder.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <system_error>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "corpus/byte_source.h"

namespace sluice::corpus {

using base::InputError;
using base::text;

namespace fs = std::filesystem;

namespace {

// One split as save_to_disk wrote it.
std::vector<fs::path> saved_files(const fs::path& folder) {
  const std::string name = (folder / "state.json").string();
  const base::Json state = base::read_json(name);
  if (state.contains("_indices_data_files") && !state["_indices_data_files"].is_null()) {
    throw InputError(text(name, " selects rows by an index: call flatten_indices() before save_to_disk()"));
  }
  std::vector<fs::path> files;
  for (const base::Json& file : base::require<std::vector<base::Json>>(state, "_data_files", name)) {
    files.push_back(folder / base::require<std::string>(file, "filename", name));
  }
  return files;
}

bool has_word(const std::string& path, const std::vector<std::string>& words) {
  const auto is_letter = [&](size_t at) {
    return at < path.size() && std::isalpha(static_cast<unsigned char>(path[at])) != 0;
  };
  return std::ranges::any_of(words, [&](const std::string& word) {
    for (size_t at = path.find(word); at != path.npos; at = path.find(word, at + 1)) {
      if ((at == 0 || !is_letter(at - 1)) && !is_letter(at + word.size())) return true;
    }
    return false;
  });
}

std::string split_of(const std::string& relative_path) {
  if (has_word(relative_path, {"validation", "valid", "val", "dev"})) return "validation";
  if (has_word(relative_path, {"test", "testing", "eval", "evaluation"})) return "test";
  return "train";
}

// Whether README.md begins with what the Hub knows of data sets, and not with somebody else's header.
bool has_card(const fs::path& folder) {
  std::ifstream file(folder / "README.md");
  std::string line;
  if (!std::getline(file, line) || base::trim(line) != "---") return false;
  while (std::getline(file, line) && base::trim(line) != "---") {
    for (const char* key : {"dataset_info:", "configs:", "task_categories:"}) {
      if (line.starts_with(key)) return true;
    }
  }
  return false;
}

bool holds_data(const fs::path& path) {
  constexpr std::array kEndings = {".jsonl", ".ndjson", ".json"};
  const fs::path name = without_compression_suffix(path);
  if (is_table(name)) return true;
  if (name.filename() == "dataset_infos.json" || name.filename() == "dataset_info.json") return false;
  return std::ranges::count(kEndings, name.extension().string()) > 0;
}

// Whether a data set's folder may hold it beside its data.
bool is_beside_data(const fs::path& path) {
  const std::string name = path.filename().string();
  return name == "README.md" || name.starts_with("LICENSE") || name.starts_with("dataset_info");
}

std::vector<fs::path> visible_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::recursive_directory_iterator next(folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && next != fs::recursive_directory_iterator(); next.increment(error)) {
    const bool hidden = next->path().filename().string().starts_with('.');
    std::error_code ignored;
    if (hidden && next->is_directory(ignored)) next.disable_recursion_pending();
    if (!hidden && next->is_regular_file(ignored)) files.push_back(next->path());
  }
  std::ranges::sort(files);
  return files;
}

std::optional<std::vector<fs::path>> hub_files(const fs::path& folder, const std::string& split) {
  const std::vector<fs::path> all = visible_files(folder);
  const bool tables = std::ranges::any_of(all, is_table);
  const bool only_tables =
      std::ranges::all_of(all, [](const fs::path& path) { return is_table(path) || is_beside_data(path); });
  if (!has_card(folder) && !(tables && only_tables)) return std::nullopt;
  std::map<std::string, std::vector<fs::path>> files;
  for (const fs::path& path : all) {
    if (tables ? is_table(path) : holds_data(path)) {
      files[split_of(fs::relative(path, folder).string())].push_back(path);
    }
  }
  if (files.empty()) return std::nullopt;
  if (files.contains(split)) return files[split];
  std::vector<std::string> names;
  for (const auto& [name, ignored] : files) names.push_back(name);
  throw InputError(text("the data set ", folder.string(), " has no split '", split, "': choose from ",
                        base::join(names, ", "), " with --split"));
}

}  // namespace

bool is_table(const fs::path& path) { return path.extension() == ".parquet" || path.extension() == ".arrow"; }

std::optional<std::vector<fs::path>> dataset_files(const fs::path& folder, const std::string& split) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) return std::nullopt;
  if (fs::exists(folder / "dataset_dict.json")) {
    const std::string name = (folder / "dataset_dict.json").string();
    const auto splits = base::require<std::vector<std::string>>(base::read_json(name), "splits", name);
    if (std::ranges::count(splits, split) > 0) return saved_files(folder / split);
    throw InputError(text("the data set ", folder.string(), " has no split '", split, "': choose from ",
                          base::join(splits, ", "), " with --split"));
  }
  if (fs::exists(folder / "state.json") && fs::exists(folder / "dataset_info.json"))
    return saved_files(folder);
  return hub_files(folder, split);
}

}  // namespace sluice::corpus
