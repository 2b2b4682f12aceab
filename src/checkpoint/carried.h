// Tensors of a model folder that Sluice neither computes with nor changes. A checkpoint keeps them in a file
// among its companions; an export puts them back among the weights.
#pragma once

#include <string_view>
#include <vector>

#include "checkpoint/companions.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_folder.h"

namespace sluice::checkpoint {

// The companion with these tensors; it is not a file of the folder.
inline constexpr std::string_view kCarriedTensors = "sluice_carried.safetensors";

// All companions of a folder's model: its files, the folder record (folder_record.h) and carried tensors if
// it has any. Logs which files are left out.
std::vector<Companion> model_companions(const std::filesystem::path& folder);

// Writes the carried tensors as one file, byte for byte. A quantised folder's 8-bit tensors become BF16,
// since exports are not quantised. Returns the figures for the manifest.
struct WrittenFile {
  int64_t bytes = 0;
  uint64_t checksum = 0;
};
WrittenFile write_carried(const TensorFolder& folder, const storage::Location& to);

// Writes a companion under its name into `directory`. If the file at its `place` is gone, it is copied from
// another checkpoint of the same location. RunError if there is none.
WrittenFile write_companion(const Companion& companion, const storage::Location& directory);

}  // namespace sluice::checkpoint
