// The files that a corpus is built from: those named, those in folders, and those of data sets, on this
// machine or in a bucket.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "corpus/dataset_folder.h"
#include "corpus/file_tree.h"
#include "storage/location.h"

namespace sluice::corpus {

// The endings taken from directories where none are given.
std::vector<std::string> default_suffixes();

struct InputFile {
  std::filesystem::path path;  // or s3://BUCKET/NAME
  int64_t size_bytes = 0;
  bool from_directory = false;  // such files are passed over when they are not text
  TextRows text_rows = TextRows::kWhole;
  std::string separator;       // of a table in CSV; empty: its ending tells it
  std::string version;         // another one where the file has changed
  size_t source = 0;           // of which input it is a part
  storage::Location place;     // what `path` names
  std::filesystem::path copy;  // on this machine, of what lies in a bucket; empty: none yet

  // What is opened to read it.
  const std::filesystem::path& local() const { return copy.empty() ? path : copy; }
};

// One of the inputs, as it was named.
struct InputSource {
  std::string name;
  std::string subset;           // of a data set: its configuration
  std::optional<int64_t> rows;  // of a data set: how many its card says that the split has
};

struct Inputs {
  std::vector<InputFile> files;
  std::vector<InputSource> sources;
  std::map<std::string, int64_t> other_endings;  // of files in directories that are not taken: how many
  std::vector<std::string> unsplit;              // data of data sets that is in no split
  PassedOverCounts passed_over;
};

struct InputOptions {
  DatasetChoice dataset;
  // Of the files taken from directories, .gz, .zst and .bz2 apart, which may follow. Where others than these
  // are given, no folder is looked at as a data set.
  std::vector<std::string> suffixes = default_suffixes();
  // Names of files and folders inside directories that are passed over, those of data sets apart; * and ?
  // stand for any characters.
  std::vector<std::string> exclude = {".*",   "site-packages", "dist-packages", "__pycache__",
                                      "test", "tests",         "idle_test",     "node_modules"};
  std::filesystem::path output;  // where the corpus is written, which is no input
  storage::Locate locate;        // of inputs in buckets; empty: there are none
  PythonTools tools;             // for cards of data sets
};

// Files in the order given, directories recursively with their files in order of path (file_tree.h); of
// folders of data sets (dataset_folder.h) the files of the split, in the order of its rows. A folder is one
// where save_to_disk or a data set's card says so, or where nothing but data lies: JSON, Parquet, Arrow, CSV;
// none is where other endings are chosen. InputError when a path does not exist, is neither a file nor a
// folder, or may not be read; when nothing is found; and when a split or a configuration is chosen and no
// input is a data set.
Inputs find_inputs(const std::vector<std::filesystem::path>& paths, const InputOptions& options);

// Whether `name` matches a pattern with * (any characters) and ? (any one).
bool matches_glob(std::string_view name, std::string_view pattern);

}  // namespace sluice::corpus
