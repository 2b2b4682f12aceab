#include "corpus/inputs.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "corpus/byte_source.h"

namespace sluice::corpus {

using base::InputError;
using base::text;

namespace fs = std::filesystem;

namespace {

bool is_wanted(const fs::path& path, const InputOptions& options) {
  const std::string suffix = without_compression_suffix(path).extension().string();
  return std::ranges::find(options.suffixes, suffix) != options.suffixes.end();
}

storage::Location place_of(const fs::path& path, const storage::Locate& locate) {
  return locate && storage::is_s3(path.string()) ? locate(path.string()) : storage::Location(path);
}

class Finder {
 public:
  explicit Finder(const InputOptions& options) : options_(options) {}

  void find(const fs::path& path) {
    const storage::Location place = place_of(path, options_.locate);
    inputs_.sources.push_back({.name = path.string()});
    if (place.is_path() ? fs::is_directory(path) : !place.is_file()) {
      find_in_folder(place);
    } else {
      inputs_.files.push_back(named_file(place));
    }
  }

  Inputs result() {
    if (inputs_.files.empty())
      throw InputError("no input is given: name text files, JSON files or directories");
    const DatasetChoice& choice = options_.dataset;
    if (!any_dataset_ && (!choice.subset.empty() || choice.split != DatasetChoice{}.split)) {
      throw InputError(text("no input is a folder of a data set, of which ",
                            choice.subset.empty() ? "--split " + choice.split : "--subset " + choice.subset,
                            " chooses a part: leave it out, or name a data set's folder"));
    }
    return std::move(inputs_);
  }

 private:
  InputFile named_file(const storage::Location& place) {
    InputFile file{.path = place.string(), .source = inputs_.sources.size() - 1, .place = place};
    const std::string name = place.string();
    if (!place.is_path()) {
      const std::optional<storage::FileStatus> status = place.status();
      file.size_bytes = status->bytes;
      file.version = status->version;
      return file;
    }
    const auto refuse = [&](const std::string& reason, const char* way_out) {
      throw InputError(text("cannot read input ", name, ": ", reason, ": ", way_out));
    };
    struct stat status {};
    if (::stat(name.c_str(), &status) != 0) refuse(std::strerror(errno), "name files that are there");
    if (!S_ISREG(status.st_mode))
      refuse("it is a pipe, a socket or a device", "write what comes from it to a file, and name that");
    if (::access(name.c_str(), R_OK) != 0) refuse(std::strerror(errno), "allow it, or name others");
    file.size_bytes = status.st_size;
    file.version = text(status.st_mtim.tv_sec, ".", status.st_mtim.tv_nsec);
    return file;
  }

  void find_in_folder(const storage::Location& root) {
    if (options_.suffixes == default_suffixes()) {
      if (std::optional<Tree> tree = dataset_tree(root)) return take_dataset(root, *tree);
    }
    const auto excluded = [&](const std::string& name) {
      return std::ranges::any_of(options_.exclude,
                                 [&](const std::string& pattern) { return matches_glob(name, pattern); });
    };
    const Tree tree = list_tree(root, {.excluded = excluded, .output = options_.output});
    inputs_.passed_over.add(tree.passed_over);
    const size_t before = inputs_.files.size();
    for (const TreeFile& file : tree.files) {
      if (is_wanted(file.name, options_)) {
        take(root, file, true);
      } else {
        ++inputs_.other_endings[fs::path(file.name).extension().string()];
      }
    }
    if (inputs_.files.size() > before) return;
    throw InputError(text("directory ", root.string(), " holds no file ending in ",
                          base::join(options_.suffixes, ", "), ": choose endings with --suffix"));
  }

  InputFile& take(const storage::Location& root, const TreeFile& file, bool from_directory) {
    const storage::Location place = root / file.name;
    return inputs_.files.emplace_back(InputFile{.path = place.string(),
                                                .size_bytes = file.size_bytes,
                                                .from_directory = from_directory,
                                                .version = file.version,
                                                .source = inputs_.sources.size() - 1,
                                                .place = place});
  }

  // All files, if the folder is a data set's.
  std::optional<Tree> dataset_tree(const storage::Location& root) {
    const auto holds = [&](const char* name) { return (root / name).is_file(); };
    saved_ = holds("dataset_dict.json") || (holds("state.json") && holds("dataset_info.json"));
    const bool has_card = saved_ || holds(".huggingface.yaml") ||
                          (holds("README.md") && is_dataset_card((root / "README.md").read()));
    TreeOptions walk{.once = false, .output = options_.output};
    if (!has_card)
      walk.only = [](const std::string& name) { return is_dataset_file(name) || may_lie_beside_data(name); };
    Tree tree = list_tree(root, walk);
    const bool any = std::ranges::any_of(tree.files, [](const TreeFile& file) {
      return is_dataset_file(file.name) && !may_lie_beside_data(file.name);
    });
    if (!has_card && !(tree.complete && any)) return std::nullopt;
    return tree;
  }

  void take_dataset(const storage::Location& root, const Tree& tree) {
    DatasetFolder folder{.name = root.string(),
                         .read = [&](const std::string& name) { return (root / name).read(); }};
    for (const TreeFile& file : tree.files) folder.files.push_back(file.name);
    const Dataset dataset = saved_ ? saved_dataset(folder, options_.dataset)
                                   : hub_dataset(folder, options_.dataset, options_.tools);
    inputs_.passed_over.add(tree.passed_over);
    inputs_.sources.back().subset = dataset.subset;
    inputs_.sources.back().rows = dataset.rows;
    for (const std::string& name : dataset.left_out) inputs_.unsplit.push_back((root / name).string());
    for (const std::string& name : dataset.files) {
      const auto found = std::ranges::lower_bound(tree.files, name, {}, &TreeFile::name);
      SLUICE_ASSERT(found != tree.files.end() && found->name == name, name);
      InputFile& file = take(root, *found, false);
      if (!is_dataset_file(name)) file.text_rows = dataset.text_rows;
      file.separator = dataset.separator;
    }
    any_dataset_ = true;
  }

  const InputOptions& options_;
  Inputs inputs_;
  bool saved_ = false;  // the last folder was written by save_to_disk
  bool any_dataset_ = false;
};

}  // namespace

std::vector<std::string> default_suffixes() {
  return {".py", ".txt",  ".md", ".c",  ".cc",    ".cpp",     ".h",    ".rs",
          ".go", ".java", ".js", ".ts", ".jsonl", ".parquet", ".arrow"};
}

bool matches_glob(std::string_view name, std::string_view pattern) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*') {
    return matches_glob(name, pattern.substr(1)) || (!name.empty() && matches_glob(name.substr(1), pattern));
  }
  if (name.empty() || (pattern[0] != '?' && pattern[0] != name[0])) return false;
  return matches_glob(name.substr(1), pattern.substr(1));
}

Inputs find_inputs(const std::vector<fs::path>& paths, const InputOptions& options) {
  Finder finder(options);
  for (const fs::path& path : paths) finder.find(path);
  return finder.result();
}

}  // namespace sluice::corpus
