#include "corpus/documents.h"

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "corpus/byte_source.h"
#include "corpus/json_objects.h"
#include "corpus/utf8.h"

namespace sluice::corpus {

using base::InputError;
using base::text;

namespace fs = std::filesystem;

namespace {

bool is_excluded(const fs::path& path, const DocumentOptions& options) {
  const std::string file_name = path.filename().string();
  return std::any_of(options.exclude.begin(), options.exclude.end(),
                     [&](const std::string& pattern) { return matches_glob(file_name, pattern); });
}

bool is_wanted(const fs::path& path, const DocumentOptions& options) {
  const std::string suffix = without_compression_suffix(path).extension().string();
  return std::find(options.suffixes.begin(), options.suffixes.end(), suffix) != options.suffixes.end();
}

std::vector<InputFile> find_in_directory(const fs::path& directory, const DocumentOptions& options,
                                         std::map<std::string, int64_t>& other_endings) {
  std::vector<InputFile> files;
  std::error_code error;
  fs::recursive_directory_iterator next(directory, fs::directory_options::skip_permission_denied, error);
  for (; !error && next != fs::recursive_directory_iterator(); next.increment(error)) {
    const bool excluded = is_excluded(next->path(), options);
    std::error_code ignored;
    if (next->is_directory(ignored)) {
      if (excluded) next.disable_recursion_pending();
    } else if (excluded || !next->is_regular_file(ignored)) {
      continue;
    } else if (!is_wanted(next->path(), options)) {
      ++other_endings[next->path().extension().string()];
    } else {
      files.push_back({next->path(), static_cast<int64_t>(next->file_size(ignored)), true});
    }
  }
  if (error) throw InputError(text("cannot list directory ", directory.string(), ": ", error.message()));
  std::sort(files.begin(), files.end(),
            [](const InputFile& a, const InputFile& b) { return a.path.string() < b.path.string(); });
  return files;
}

// One document before cutting.
void visit_whole(std::string_view whole, const DocumentOptions& options, DocumentCounts& counts,
                 const std::function<void(std::string_view)>& visit) {
  if (whole.empty()) {
    ++counts.empty_documents;
    return;
  }
  if (!is_utf8(whole)) {
    ++counts.refused_documents;
    return;
  }
  for (const std::string_view part : cut_at(whole, options.delimiter)) {
    ++counts.documents;
    counts.bytes += static_cast<int64_t>(part.size());
    visit(part);
  }
}

bool holds_text(const base::Json& json, const std::string& key) {
  return json.is_object() && json.contains(key) && json[key].is_string();
}

// Whether the first line is a JSON object with text under the key.
bool begins_as_json_lines(std::string_view bytes, const DocumentOptions& options) {
  const std::string_view line = base::trim(bytes.substr(0, bytes.find('\n')));
  if (!line.starts_with('{') || !line.ends_with('}')) return false;
  return holds_text(base::Json::parse(line, nullptr, /*allow_exceptions=*/false), options.text_key);
}

bool is_json(const fs::path& path, std::string_view beginning, const DocumentOptions& options) {
  const std::string suffix = without_compression_suffix(path).extension().string();
  return suffix == ".jsonl" || suffix == ".ndjson" || suffix == ".json" ||
         begins_as_json_lines(beginning, options);
}

void visit_json(const std::string& object, const std::string& place, const DocumentOptions& options,
                DocumentCounts& counts, const std::function<void(std::string_view)>& visit) {
  if (!is_utf8(object)) {
    ++counts.refused_documents;
    return;
  }
  const base::Json json = base::parse_json(object, place);
  if (!holds_text(json, options.text_key)) {
    throw InputError(text(place, ": there is no text under '", options.text_key,
                          "': name the key of the documents with --text-key"));
  }
  visit_whole(json[options.text_key].get_ref<const std::string&>(), options, counts, visit);
}

}  // namespace

bool matches_glob(std::string_view name, std::string_view pattern) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*') {
    return matches_glob(name, pattern.substr(1)) || (!name.empty() && matches_glob(name.substr(1), pattern));
  }
  if (name.empty() || (pattern[0] != '?' && pattern[0] != name[0])) return false;
  return matches_glob(name.substr(1), pattern.substr(1));
}

std::vector<std::string_view> cut_at(std::string_view whole, std::string_view delimiter) {
  std::vector<std::string_view> parts;
  while (!whole.empty()) {
    const size_t found = delimiter.empty() ? whole.npos : whole.find(delimiter);
    const size_t size = found == whole.npos ? whole.size() : found + delimiter.size();
    parts.push_back(whole.substr(0, size));
    whole.remove_prefix(size);
  }
  return parts;
}

Inputs find_inputs(const std::vector<fs::path>& paths, const DocumentOptions& options) {
  Inputs inputs;
  for (const fs::path& path : paths) {
    std::error_code error;
    if (fs::is_directory(path, error)) {
      const std::vector<InputFile> found = find_in_directory(path, options, inputs.other_endings);
      if (found.empty()) {
        throw InputError(text("directory ", path.string(), " holds no file ending in ",
                              base::join(options.suffixes, ", "), ": choose endings with --suffix"));
      }
      inputs.files.insert(inputs.files.end(), found.begin(), found.end());
    } else {
      const auto size_bytes = fs::file_size(path, error);
      if (error) throw InputError(text("cannot read input ", path.string(), ": ", error.message()));
      inputs.files.push_back({path, static_cast<int64_t>(size_bytes), false});
    }
  }
  if (inputs.files.empty()) {
    throw InputError("no input is given: name text files, JSON files or directories");
  }
  return inputs;
}

void for_each_document(const InputFile& file, const DocumentOptions& options, DocumentCounts& counts,
                       const std::function<void(std::string_view)>& visit) {
  const std::string name = file.path.string();
  ByteSource source(file.path);
  std::string_view bytes = source.next();
  ++counts.files;
  if (is_json(file.path, bytes, options)) {
    JsonObjects objects(name, [&](const std::string& object, int64_t line) {
      visit_json(object, text(name, ":", line), options, counts, visit);
    });
    for (; !bytes.empty(); bytes = source.next()) objects.feed(bytes);
    return objects.finish();
  }
  std::string whole;  // of what is decompressed
  if (source.compressed()) {
    for (; !bytes.empty(); bytes = source.next()) whole += bytes;
    bytes = whole;
  }
  const bool may_be_binary = file.from_directory || source.compressed();
  if (may_be_binary && (bytes.find('\0') != bytes.npos || !is_utf8(bytes))) {
    ++counts.binary_files;
  } else {
    visit_whole(bytes, options, counts, visit);
  }
}

}  // namespace sluice::corpus
