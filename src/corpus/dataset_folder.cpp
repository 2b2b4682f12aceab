#include "corpus/dataset_folder.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "corpus/byte_source.h"

namespace sluice::corpus {

using base::InputError;
using base::Json;
using base::text;

namespace fs = std::filesystem;

namespace {

constexpr const char* kDatasetDict = "dataset_dict.json";

bool has_file(const DatasetFolder& folder, const std::string& name) {
  return std::ranges::find(folder.files, name) != folder.files.end();
}

Json json_file(const DatasetFolder& folder, const std::string& name) {
  return base::parse_json(folder.read(name), text(folder.name, "/", name));
}

// The files of one split as save_to_disk wrote it, in `inside` ("train/", or "").
std::vector<std::string> saved_files(const DatasetFolder& folder, const std::string& inside) {
  const std::string name = text(folder.name, "/", inside, "state.json");
  const Json state = json_file(folder, inside + "state.json");
  if (state.contains("_indices_data_files") && !state["_indices_data_files"].is_null()) {
    throw InputError(text(name, " selects rows by an index: call flatten_indices() before save_to_disk()"));
  }
  std::vector<std::string> files;
  for (const Json& file : base::require<std::vector<Json>>(state, "_data_files", name)) {
    files.push_back(inside + base::require<std::string>(file, "filename", name));
    if (!has_file(folder, files.back())) {
      throw InputError(text(name, " names ", files.back(), ", which is not there: copy the data set again"));
    }
  }
  return files;
}

TextRows text_rows_of(const Json& options, const std::string& name) {
  const std::string by = options.value("sample_by", "line");
  if (by == "document") return TextRows::kWhole;
  if (by == "paragraph") return TextRows::kParagraphs;
  if (by != "line")
    throw InputError(text("the data set ", name, ": its card's sample_by is '", by,
                          "': set it to line, paragraph or document"));
  return options.value("keep_linebreaks", false) ? TextRows::kLinesWithBreaks : TextRows::kLines;
}

Json question_of(const DatasetFolder& folder, const DatasetChoice& choice) {
  Json texts = Json::object();
  for (const char* name : {"README.md", ".huggingface.yaml", "dataset_infos.json"}) {
    if (has_file(folder, name)) texts[name] = folder.read(name);
  }
  return {{"name", folder.name},
          {"files", folder.files},
          {"texts", std::move(texts)},
          {"subset", choice.subset},
          {"split", choice.split}};
}

}  // namespace

bool is_table(const fs::path& path) {
  constexpr std::array kEndings = {".parquet", ".geoparquet", ".gpq", ".arrow", ".csv", ".tsv"};
  const std::string ending = without_compression_suffix(path).extension().string();
  return std::ranges::find(kEndings, ending) != kEndings.end();
}

bool is_dataset_card(const std::string& readme) {
  std::istringstream lines(readme);
  std::string line;
  if (!std::getline(lines, line) || base::trim(line) != "---") return false;
  while (std::getline(lines, line) && base::trim(line) != "---") {
    for (const char* key : {"dataset_info:", "configs:", "task_categories:", "size_categories:"}) {
      if (line.starts_with(key)) return true;
    }
  }
  return false;
}

bool is_dataset_file(const std::string& name) {
  constexpr std::array kEndings = {".jsonl", ".ndjson", ".json"};
  const fs::path plain = without_compression_suffix(name);
  return is_table(plain) || std::ranges::count(kEndings, plain.extension().string()) > 0;
}

bool may_lie_beside_data(const std::string& name) {
  const std::string file = fs::path(name).filename().string();
  return file.starts_with('.') || file.starts_with("README") || file.starts_with("LICENSE") ||
         file.starts_with("CITATION") || file == "dataset_info.json" || file == "dataset_infos.json";
}

Dataset saved_dataset(const DatasetFolder& folder, const DatasetChoice& choice) {
  if (!choice.subset.empty()) {
    throw InputError(text("the data set ", folder.name, " was saved by save_to_disk, of one configuration: ",
                          "leave --subset ", choice.subset, " out"));
  }
  if (!has_file(folder, kDatasetDict)) return {.files = saved_files(folder, "")};
  const auto splits = base::require<std::vector<std::string>>(json_file(folder, kDatasetDict), "splits",
                                                              text(folder.name, "/", kDatasetDict));
  if (std::ranges::count(splits, choice.split) > 0) return {.files = saved_files(folder, choice.split + "/")};
  throw InputError(text("the data set ", folder.name, " has no split '", choice.split, "': choose from ",
                        base::join(splits, ", "), " with --split"));
}

Dataset hub_dataset(const DatasetFolder& folder, const DatasetChoice& choice, const PythonTools& tools) {
  PythonChild child(tools, "dataset_files.py", {}, text("the data set ", folder.name));
  const std::string question = base::json_text(question_of(folder, choice));
  child.send_text(question);
  child.check_status();
  const Json json = base::parse_json(child.receive_text(), "dataset_files.py");
  const Json& options = json["options"];
  Dataset dataset{.files = json["files"], .left_out = json["left_out"], .subset = json["subset"]};
  dataset.text_rows = text_rows_of(options, folder.name);
  if (options.contains("sep")) dataset.separator = options["sep"];
  if (json["rows"].is_number_integer()) dataset.rows = json["rows"].get<int64_t>();
  return dataset;
}

}  // namespace sluice::corpus
