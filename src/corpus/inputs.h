// The files from which a corpus is built: named files, files in folders, and files of data sets, on this
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

// The endings of files taken from directories by default.
std::vector<std::string> default_suffixes();

struct InputFile {
  std::filesystem::path path;  // or s3://BUCKET/NAME
  int64_t size_bytes = 0;
  bool from_directory = false;  // such files are passed over if they are not text
  TextRows text_rows = TextRows::kWhole;
  std::string separator;       // separator of a CSV table; empty: by its ending
  std::string version;         // changes whenever the file does
  size_t source = 0;           // number of the input that contains the file
  storage::Location place;     // location of `path`
  std::filesystem::path copy;  // local copy of a file in a bucket; empty: none yet

  // The local path to open for reading.
  const std::filesystem::path& local() const { return copy.empty() ? path : copy; }
};

// One input, as the user named it.
struct InputSource {
  std::string name;
  std::string subset;           // data sets: the configuration
  std::optional<int64_t> rows;  // data sets: rows of the split, as the card says
};

struct Inputs {
  std::vector<InputFile> files;
  std::vector<InputSource> sources;
  std::map<std::string, int64_t> other_endings;  // endings of directories' files that are not taken: how many
  std::vector<std::string> unsplit;              // data files of data sets that belong to no split
  PassedOverCounts passed_over;
};

struct InputOptions {
  DatasetChoice dataset;
  // Endings of the files taken from directories; .gz, .zst and .bz2 may follow them. If other endings than
  // the default are given, no folder is treated as a data set.
  std::vector<std::string> suffixes = default_suffixes();
  // Patterns of file and folder names passed over inside directories, except in data sets. * and ? stand for
  // any characters.
  std::vector<std::string> exclude = {".*",   "site-packages", "dist-packages", "__pycache__",
                                      "test", "tests",         "idle_test",     "node_modules"};
  std::filesystem::path output;  // folder of the corpus being written, which is no input
  storage::Locate locate;        // opens places of inputs in buckets; empty: there are none
  PythonTools tools;             // for reading cards of data sets
};

// Finds files in the order given. Directories are searched recursively, in order of path (file_tree.h);
// folders of data sets (dataset_folder.h) give the files of the split in the order of its rows. A folder is a
// data set if save_to_disk or a data set's card says so, or if it holds nothing but data: JSON, Parquet,
// Arrow, CSV; never if other endings are chosen. InputError if a path does not exist, is neither a file nor a
// folder, or may not be read. InputError, too, if nothing is found, or if a split or a configuration is
// chosen and no input is a data set.
Inputs find_inputs(const std::vector<std::filesystem::path>& paths, const InputOptions& options);

// Whether `name` matches a pattern with * (any characters) and ? (any one).
bool matches_glob(std::string_view name, std::string_view pattern);

}  // namespace sluice::corpus
