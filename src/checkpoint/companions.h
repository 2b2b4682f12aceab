// What goes with a model's weights and is not learnt: config.json, tokenizer, generation settings, and
// whatever else lies in its folder. Import reads these files, every checkpoint keeps them, export writes them
// again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::checkpoint {

struct Companion {
  std::string name;  // of the file, with the folders that it lies in: "assets/icon.png"
  std::string bytes;
  // Of a large one, instead of its bytes, the file that has them; of what a folder carries, that folder.
  std::filesystem::path place;
  uint64_t checksum = 0;  // of the bytes at `place` (base::hash_bytes); 0: not known
};

// Larger files stay where they are until they are copied.
inline constexpr int64_t kLargeCompanionBytes = int64_t{64} << 20;

// Whether a file of this name may go with a model: a path that stays within the folder.
bool is_companion(std::string_view name);

// The files of a model folder that exports give back as they are, by name: all but its weights, what Sluice
// keeps of its own, and hidden ones. Weights in formats of other programs, which would not be those that were
// trained, are left out and named in `left_out`.
std::vector<Companion> read_companions(const std::filesystem::path& folder,
                                       std::vector<std::string>* left_out = nullptr);

}  // namespace sluice::checkpoint
