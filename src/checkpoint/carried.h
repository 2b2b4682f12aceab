// Tensors of a model folder that Sluice neither computes with nor changes: as a file among a checkpoint's
// companions, and back among the weights of an export.
#pragma once

#include <string_view>
#include <vector>

#include "checkpoint/companions.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_folder.h"

namespace sluice::checkpoint {

// The companion that has them; not a file of the folder.
inline constexpr std::string_view kCarriedTensors = "sluice_carried.safetensors";

// All that goes with the model of a folder: its files, the record of what else it says (folder_record.h) and,
// where it has tensors to carry, these. Logs what is left out.
std::vector<Companion> model_companions(const std::filesystem::path& folder);

// Writes them as one file, their bytes as they are; of a quantised folder those in 8 bits as BF16, as its
// exports are not quantised. What the manifest says of it.
struct WrittenFile {
  int64_t bytes = 0;
  uint64_t checksum = 0;
};
WrittenFile write_carried(const TensorFolder& folder, const storage::Location& to);

// Writes a companion under its name into `directory`. One whose place is gone is taken from a checkpoint
// beside this one. RunError when it is in neither.
WrittenFile write_companion(const Companion& companion, const storage::Location& directory);

}  // namespace sluice::checkpoint
