// Folders that hold a Hugging Face data set: the output of its `save_to_disk`, or a copy of a repository of
// the Hub.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "corpus/python_child.h"

namespace sluice::corpus {

// Parquet, Arrow and CSV files, by their endings.
bool is_table(const std::filesystem::path& path);

// The rows of a text file: the whole file, its lines (with or without their breaks), or its paragraphs.
enum class TextRows : uint8_t { kWhole, kLines, kLinesWithBreaks, kParagraphs };

struct DatasetChoice {
  std::string split = "train";
  std::string subset;  // the configuration; empty: the only one, or the default
};

// A folder on this machine or in a bucket.
struct DatasetFolder {
  std::string name;                // for errors
  std::vector<std::string> files;  // all files, relative to the folder
  std::function<std::string(const std::string& file)> read;
};

struct Dataset {
  std::vector<std::string> files;     // the split's files, relative to the folder, in the order of the rows
  std::vector<std::string> left_out;  // data files that belong to no split
  std::string subset;                 // the configuration; empty if there is a single unnamed one
  TextRows text_rows = TextRows::kLines;
  std::string separator;        // separator of CSV files; empty: by their endings
  std::optional<int64_t> rows;  // number of rows in the split, as its card says
};

// Whether a README.md begins with the Hub's metadata for data sets, and not with another header.
bool is_dataset_card(const std::string& readme);
// Whether a file of this name can be data of a data set without a card; and whether a file of this name may
// lie beside such data.
bool is_dataset_file(const std::string& name);
bool may_lie_beside_data(const std::string& name);

// Reads the output of save_to_disk: state.json lists Arrow files, in one folder or in a folder for each split
// that dataset_dict.json names. InputError if the split does not exist (the message lists the existing ones)
// or if a configuration is chosen. InputError, too, if rows were selected before the data set was saved: the
// Arrow files do not show the selection.
Dataset saved_dataset(const DatasetFolder& folder, const DatasetChoice& choice);

// Reads any other data set: finds configurations and splits as `datasets.load_dataset` does, by the card,
// else by words in names of files and folders (tools/dataset_files.py). InputError where load_dataset
// refuses: several configurations without a choice or default, a split that does not exist, missing files,
// formats without text.
Dataset hub_dataset(const DatasetFolder& folder, const DatasetChoice& choice, const PythonTools& tools);

}  // namespace sluice::corpus
