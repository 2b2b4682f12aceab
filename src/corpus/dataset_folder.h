// Folders that hold a Hugging Face data set: what its `save_to_disk` wrote, or a copy of a repository of the
// Hub.
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

// What a text file's rows are: itself, or its lines or paragraphs, without their breaks or with them.
enum class TextRows : uint8_t { kWhole, kLines, kLinesWithBreaks, kParagraphs };

struct DatasetChoice {
  std::string split = "train";
  std::string subset;  // the configuration; empty: the only one, or the default
};

// A folder, wherever it lies.
struct DatasetFolder {
  std::string name;                // for errors
  std::vector<std::string> files;  // all of it, below the folder
  std::function<std::string(const std::string& file)> read;
};

struct Dataset {
  std::vector<std::string> files;     // of the split, below the folder, in the order of the rows
  std::vector<std::string> left_out;  // data that is of no split
  std::string subset;                 // the configuration; empty where there is one only, without a name
  TextRows text_rows = TextRows::kLines;
  std::string separator;        // of CSV files; empty: their endings tell it
  std::optional<int64_t> rows;  // of the split, as its card says
};

// Whether `file` marks the folder in which it lies as what save_to_disk wrote.
bool marks_saved_dataset(const std::string& file);
// Whether a README.md begins with what the Hub knows of data sets, and not with somebody else's header.
bool is_dataset_card(const std::string& readme);
// Whether a file of this name is a data file of data sets that need no card, and whether one may lie beside
// these.
bool is_dataset_file(const std::string& name);
bool may_lie_beside_data(const std::string& name);

// What save_to_disk wrote: state.json lists Arrow files, in a folder for each split that dataset_dict.json
// names, or in one. InputError when there is no such split, with the ones that there are; when a
// configuration is chosen; or when rows were selected before the data set was saved, which Arrow files do not
// show.
Dataset saved_dataset(const DatasetFolder& folder, const DatasetChoice& choice);

// Any other data set: configurations and splits as `datasets.load_dataset` finds them, by the card, else by
// words in names of files and folders (tools/dataset_files.py). InputError where that refuses: several
// configurations of which none is chosen or the default, no such split, files that are not there, formats
// without text.
Dataset hub_dataset(const DatasetFolder& folder, const DatasetChoice& choice, const PythonTools& tools);

}  // namespace sluice::corpus
