// Folders that hold a Hugging Face data set: what its `save_to_disk` wrote, or a copy of a repository of the
// Hub.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace sluice::corpus {

// Parquet and Arrow files, by their endings.
bool is_table(const std::filesystem::path& path);

// The data files of `split`, in the order of the rows; nothing when `folder` is not such a folder.
//
// `save_to_disk` leaves state.json, which lists Arrow files, in a folder for each split that
// dataset_dict.json names, or in one. Any other folder is a data set when it has a dataset card (the header
// of a README.md) or holds tables and no other data; its files' splits are told as the library does, by words
// (train; validation, valid, val, dev; test, testing, eval, evaluation) in names of files and folders, and
// without one are train.
//
// InputError when there is no such split, with the ones that there are; or when rows were selected in a data
// set before it was saved, which Arrow files do not show.
std::optional<std::vector<std::filesystem::path>> dataset_files(const std::filesystem::path& folder,
                                                                const std::string& split);

}  // namespace sluice::corpus
