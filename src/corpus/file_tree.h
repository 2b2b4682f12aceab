// Lists a folder of a file system or a bucket, and the entries that are passed over.
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

// The reason why an entry of a folder is not taken.
enum class PassedOver : uint8_t {
  kDeadLink,      // leads nowhere, or to itself
  kLinkedBefore,  // leads to a file or folder already taken, or to a folder that contains the link
  kSpecial,       // a pipe, a socket or a device
  kOwnOutput,     // the files of a corpus
};
inline constexpr size_t kPassedOverKinds = 4;

// The number of entries passed over for each reason, and the first of them.
struct PassedOverCounts {
  std::array<Findings, kPassedOverKinds> kinds;

  void add(PassedOver reason, const std::string& path);
  void add(const PassedOverCounts& other);
};

// "links that lead nowhere" for messages, and "dead_links", the key of --json.
std::string_view description(PassedOver reason);
std::string_view key(PassedOver reason);

struct TreeFile {
  std::string name;  // below the root, with slashes between folders
  int64_t size_bytes = 0;
  std::string version;  // changes whenever the file does
};

struct Tree {
  std::vector<TreeFile> files;  // ordered by name
  PassedOverCounts passed_over;
  bool complete = true;  // false: TreeOptions::only ended the walk
};

struct TreeOptions {
  // Whether an entry of this file name is left out, with everything in it; may be empty.
  std::function<bool(const std::string& file_name)> excluded;
  // The walk ends at the first file for which this is false; may be empty.
  std::function<bool(const std::string& name)> only;
  // A folder or file reached by several links is taken once, under its own name or else the first link's.
  // False: links are taken as often as they occur.
  bool once = true;
  std::filesystem::path output;  // folder of the corpus being written; its files are left out
};

// Follows links. InputError naming a folder that cannot be listed, a file that may not be read, or folders
// that links nest into each other beyond kMostFiles.
inline constexpr int64_t kMostFiles = 50'000'000;
Tree list_tree(const storage::Location& root, const TreeOptions& options);

}  // namespace sluice::corpus
