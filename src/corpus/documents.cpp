#include "corpus/documents.h"

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "base/text.h"
#include "corpus/byte_source.h"
#include "corpus/dataset_folder.h"

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
  if (error)
    throw InputError(text("cannot list directory ", directory.string(), ": ", error.message(),
                          ": allow it or name others"));
  std::sort(files.begin(), files.end(),
            [](const InputFile& a, const InputFile& b) { return a.path.string() < b.path.string(); });
  return files;
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

Inputs find_inputs(const std::vector<fs::path>& paths, const DocumentOptions& options) {
  Inputs inputs;
  for (const fs::path& path : paths) {
    std::error_code error;
    if (const auto found = dataset_files(path, options.split)) {
      for (const fs::path& file : *found) {
        inputs.files.push_back({file, static_cast<int64_t>(fs::file_size(file, error)), false});
      }
    } else if (fs::is_directory(path, error)) {
      const std::vector<InputFile> found = find_in_directory(path, options, inputs.other_endings);
      if (found.empty()) {
        throw InputError(text("directory ", path.string(), " holds no file ending in ",
                              base::join(options.suffixes, ", "), ": choose endings with --suffix"));
      }
      inputs.files.insert(inputs.files.end(), found.begin(), found.end());
    } else {
      const auto size_bytes = fs::file_size(path, error);
      if (error)
        throw InputError(
            text("cannot read input ", path.string(), ": ", error.message(), ": name files that are there"));
      inputs.files.push_back({path, static_cast<int64_t>(size_bytes), false});
    }
  }
  if (inputs.files.empty()) {
    throw InputError("no input is given: name text files, JSON files or directories");
  }
  return inputs;
}

}  // namespace sluice::corpus
