#include "corpus/file_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace sluice::corpus {

using base::InputError;
using base::text;

namespace fs = std::filesystem;

namespace {

using FileId = std::pair<dev_t, ino_t>;

FileId id_of(const struct stat& status) { return {status.st_dev, status.st_ino}; }

std::string version_of(const struct stat& status) {
  return text(status.st_mtim.tv_sec, ".", status.st_mtim.tv_nsec);
}

// Whether a build, or a merge, writes a file of this name beside or into a corpus.
bool is_written_by_builds(const std::string& file_name) {
  constexpr std::array kNames = {"corpus.bin",     "corpus.idx",        "corpus.mask",
                                 "corpus.marks",   "lengths.json",      "part.json",
                                 "tokenizer.json", "tokenizer.model",   "tokenizer_config.json",
                                 "corpus.labels",  "corpus.unfinished", "chat_template.jinja"};
  return std::ranges::find(kNames, file_name) != kNames.end();
}

// Walks a folder of the file system level by level. Links come last, so that a file with a name of its own
// keeps that name.
class Walk {
 public:
  Walk(fs::path root, const TreeOptions& options) : root_(std::move(root)), options_(options) {
    std::error_code ignored;
    if (!options.output.empty()) output_ = fs::weakly_canonical(options.output, ignored);
  }

  Tree run() {
    struct stat status {};
    if (::stat(root_.c_str(), &status) != 0) refuse(root_, "look at");
    folders_.insert(id_of(status));
    list("", {id_of(status)});
    while (!links_.empty() && tree_.complete) {
      std::vector<Link> links = std::exchange(links_, {});
      std::ranges::sort(links, {}, &Link::name);
      for (const Link& link : links) follow(link);
    }
    std::ranges::sort(tree_.files, {}, &TreeFile::name);
    return std::move(tree_);
  }

 private:
  struct Link {
    std::string name;
    std::vector<FileId> above;  // the folders above it
  };

  [[noreturn]] static void refuse(const fs::path& path, const char* verb) {
    throw InputError(text("cannot ", verb, " ", path.string(), ": ", std::strerror(errno),
                          ": allow it, or pass it over with --exclude ", path.filename().string()));
  }

  std::vector<std::string> names_in(const fs::path& folder) {
    const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), &::closedir);
    if (!open) refuse(folder, "list folder");
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(open.get())) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    if (errno != 0) refuse(folder, "list folder");
    std::ranges::sort(names);
    return names;
  }

  // Whether the folder contains a corpus, or is the output folder.
  bool holds_corpus(const fs::path& folder, const std::vector<std::string>& names) const {
    if (std::ranges::binary_search(names, "corpus.idx") && std::ranges::binary_search(names, "corpus.bin"))
      return true;
    std::error_code ignored;
    return !output_.empty() && fs::weakly_canonical(folder, ignored) == output_;
  }

  void list(const std::string& name, const std::vector<FileId>& above) {
    const fs::path folder = name.empty() ? root_ : root_ / name;
    const std::vector<std::string> names = names_in(folder);
    const bool has_corpus = holds_corpus(folder, names);
    for (const std::string& file_name : names) {
      if (!tree_.complete) return;
      const std::string inner = name.empty() ? file_name : name + "/" + file_name;
      if (options_.excluded && options_.excluded(file_name)) continue;
      if (has_corpus && is_written_by_builds(file_name)) {
        pass_over(PassedOver::kOwnOutput, inner);
        continue;
      }
      struct stat status {};
      if (::lstat((root_ / inner).c_str(), &status) != 0) {
        if (errno == ENOENT) continue;  // removed meanwhile
        refuse(root_ / inner, "look at");
      }
      if (S_ISLNK(status.st_mode)) {
        links_.push_back({inner, above});
      } else {
        take(inner, status, above);
      }
    }
  }

  void follow(const Link& link) {
    struct stat status {};
    if (!tree_.complete) return;
    if (::stat((root_ / link.name).c_str(), &status) != 0) {
      if (errno == EACCES) refuse(root_ / link.name, "follow link");
      return pass_over(PassedOver::kDeadLink, link.name);
    }
    linked_ = true;
    take(link.name, status, link.above);
  }

  // Behind a link, files may lie that were already taken by another way.
  bool is_again(const FileId& id, const std::vector<FileId>& above) const {
    if (!linked_) return false;
    const bool circular = std::ranges::find(above, id) != above.end();
    return circular || (options_.once && (folders_.contains(id) || files_.contains(id)));
  }

  void take(const std::string& name, const struct stat& status, const std::vector<FileId>& above) {
    const FileId id = id_of(status);
    if (is_again(id, above)) return pass_over(PassedOver::kLinkedBefore, name);
    if (S_ISDIR(status.st_mode)) {
      std::vector<FileId> inside = above;
      inside.push_back(id);
      folders_.insert(id);
      return list(name, inside);
    }
    if (!S_ISREG(status.st_mode)) return pass_over(PassedOver::kSpecial, name);
    if (options_.only && !options_.only(name)) {
      tree_.complete = false;
      return;
    }
    if (::faccessat(AT_FDCWD, (root_ / name).c_str(), R_OK, AT_EACCESS) != 0) refuse(root_ / name, "read");
    if (static_cast<int64_t>(tree_.files.size()) >= kMostFiles) {
      throw InputError(text(root_.string(), " holds more than ", kMostFiles,
                            " files, or links lay its folders into each other: name fewer"));
    }
    files_.insert(id);
    tree_.files.push_back({name, static_cast<int64_t>(status.st_size), version_of(status)});
  }

  void pass_over(PassedOver reason, const std::string& name) {
    tree_.passed_over.add(reason, (root_ / name).string());
  }

  const fs::path root_;
  const TreeOptions& options_;
  fs::path output_;
  Tree tree_;
  std::vector<Link> links_;
  bool linked_ = false;  // the walk is behind the links
  std::set<FileId> folders_, files_;
};

void list_bucket(const storage::Location& folder, const std::string& name, const TreeOptions& options,
                 Tree& tree) {
  for (const storage::Entry& entry : folder.entries()) {
    const std::string inner = name.empty() ? entry.name : name + "/" + entry.name;
    if (!tree.complete) return;
    if (options.excluded && options.excluded(entry.name)) continue;
    if (entry.is_directory) {
      list_bucket(folder / entry.name, inner, options, tree);
    } else if (options.only && !options.only(inner)) {
      tree.complete = false;
    } else {
      tree.files.push_back({inner, entry.bytes, entry.version});
    }
  }
}

constexpr std::array<std::pair<std::string_view, std::string_view>, kPassedOverKinds> kReasons = {{
    {"dead_links", "links that lead nowhere"},
    {"repeated_links", "links to what is read already"},
    {"special_files", "pipes, sockets and devices"},
    {"corpus_files", "files of corpora"},
}};

}  // namespace

std::string_view key(PassedOver reason) { return kReasons[static_cast<size_t>(reason)].first; }
std::string_view description(PassedOver reason) { return kReasons[static_cast<size_t>(reason)].second; }

void PassedOverCounts::add(PassedOver reason, const std::string& path) {
  kinds[static_cast<size_t>(reason)].add(path);
}

void PassedOverCounts::add(const PassedOverCounts& other) {
  for (size_t i = 0; i < kinds.size(); ++i) kinds[i] += other.kinds[i];
}

Tree list_tree(const storage::Location& root, const TreeOptions& options) {
  if (root.is_path()) return Walk(root.path(), options).run();
  Tree tree;
  list_bucket(root, "", options, tree);
  std::ranges::sort(tree.files, {}, &TreeFile::name);
  return tree;
}

}  // namespace sluice::corpus
