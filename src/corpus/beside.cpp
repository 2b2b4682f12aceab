#include "corpus/beside.h"

#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "corpus/remote_copy.h"

namespace sluice::corpus {

namespace fs = std::filesystem;

namespace {

// Files of a bucket's folder to copy, each with its name below that folder and its version.
struct Wanted {
  storage::Location place;
  std::string name;
  std::string version;
};

std::vector<Wanted> wanted_files(const storage::Location& folder) {
  std::vector<Wanted> files;
  for (const storage::Entry& entry : folder.entries()) {
    const bool known = entry.name == "lengths.json" || std::ranges::count(tokenizer_files(), entry.name) > 0;
    if (known && !entry.is_directory) files.push_back({folder / entry.name, entry.name, entry.version});
    if (entry.name != kMoreTemplates || !entry.is_directory) continue;
    for (const storage::Entry& each : (folder / entry.name).entries()) {
      if (each.is_directory) continue;
      files.push_back(
          {folder / entry.name / each.name, base::text(entry.name, "/", each.name), each.version});
    }
  }
  return files;
}

// The folder appears under its name once it is complete; another process may have made it meanwhile.
void copy_all(const std::vector<Wanted>& files, const fs::path& folder) {
  const fs::path growing = base::text(folder.string(), ".", ::getpid());
  base::make_directories(growing);
  for (const Wanted& file : files) {
    base::make_directories((growing / file.name).parent_path());
    copy_to_file(file.place, file.version, growing / file.name);
  }
  std::error_code ignored;
  fs::rename(growing, folder, ignored);
  fs::remove_all(growing, ignored);
}

}  // namespace

const std::vector<std::string>& tokenizer_files() {
  static const std::vector<std::string> names = {"tokenizer.json",        "tokenizer.model",
                                                 "tokenizer_config.json", "chat_template.jinja",
                                                 "chat_template.json",    "generation_config.json"};
  return names;
}

fs::path folder_beside(const fs::path& told, const IndexedOptions& places) {
  const fs::path prefix = corpus_prefix(told);  // the path may also be a build's folder
  if (!storage::is_s3(prefix.string()) || !places.locate) return prefix.parent_path();
  const storage::Location folder = places.locate(prefix.string()).parent();
  const std::vector<Wanted> files = wanted_files(folder);
  base::CanonicalBytes versions;
  for (const Wanted& file : files) versions.add(file.name).add(file.version);
  const std::string name = base::hash_text(base::hash_bytes(folder.string()));
  fs::path copy = places.cache / base::text(name, "-", base::hash_text(versions.hash()), ".beside");
  std::error_code ignored;
  if (fs::exists(copy, ignored)) return copy;
  copy_all(files, copy);
  for (const auto& entry : fs::directory_iterator(places.cache, ignored)) {
    const bool older = entry.path().filename().string().starts_with(name) && entry.path() != copy;
    if (older && entry.path().extension() == ".beside") fs::remove_all(entry.path(), ignored);
  }
  return copy;
}

}  // namespace sluice::corpus
