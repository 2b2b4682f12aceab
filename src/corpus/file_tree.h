// What lies in a folder, of a file system or a bucket, and what of it is passed over.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "corpus/findings.h"
#include "storage/location.h"

namespace sluice::corpus {

// Why an entry of a folder is not taken.
enum class PassedOver : uint8_t {
  kDeadLink,      // leads nowhere, or to itself
  kLinkedBefore,  // leads to what is taken already, or to a folder that it lies in
  kSpecial,       // a pipe, a socket or a device
  kOwnOutput,     // the files of a corpus
};
inline constexpr size_t kPassedOverKinds = 4;

// How many entries were passed over for each reason, and the first of them.
struct PassedOverCounts {
  std::array<Findings, kPassedOverKinds> kinds;

  void add(PassedOver reason, const std::string& path);
  void add(const PassedOverCounts& other);
};

// "links that lead nowhere", and the key of --json, "dead_links".
std::string_view description(PassedOver reason);
std::string_view key(PassedOver reason);

struct TreeFile {
  std::string name;  // below the root, with slashes between folders
  int64_t size_bytes = 0;
  std::string version;  // another one where the file has changed
};

struct Tree {
  std::vector<TreeFile> files;  // in order of name
  PassedOverCounts passed_over;
  bool complete = true;  // false: TreeOptions::only ended the walk
};

struct TreeOptions {
  // Whether an entry of this file name is left out, with all that lies in it; may be empty.
  std::function<bool(const std::string& file_name)> excluded;
  // The walk ends at the first file for which this is false; may be empty.
  std::function<bool(const std::string& name)> only;
  // A folder or a file that several links lead to is taken once, under the name that is none or comes first.
  // Otherwise links are taken as often as they stand there.
  bool once = true;
  std::filesystem::path output;  // where a corpus is written; its files are left out
};

// Links are followed. InputError naming a folder that cannot be listed, a file that may not be read, or
// folders that links lay into each other beyond kMostFiles.
inline constexpr int64_t kMostFiles = 50'000'000;
Tree list_tree(const storage::Location& root, const TreeOptions& options);

}  // namespace sluice::corpus
