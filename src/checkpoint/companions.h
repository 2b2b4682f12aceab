// Companions: the files that go with a model's weights and are not trained, as config.json, tokenizer,
// generation settings and whatever else lies in the model's folder. Import reads them, every checkpoint keeps
// them, export writes them again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::checkpoint {

struct Companion {
  std::string name;  // the file's name with its folders: "assets/icon.png"
  std::string bytes;
  // Set in place of `bytes`. Large companions: the file with them; carried tensors: the model's folder.
  std::filesystem::path place;
  uint64_t checksum = 0;  // hash of the bytes at `place` (base::hash_bytes); 0: unknown
};

// Larger files are not read into memory; they are copied from `place`.
inline constexpr int64_t kLargeCompanionBytes = int64_t{64} << 20;

// Whether a file of this name may go with a model: a path that stays within the folder.
bool is_companion(std::string_view name);

// The files of a model folder that exports give back unchanged, by name: all but the weights, Sluice's own
// files and hidden ones. Weights in other programs' formats would not be the trained ones, so they are left
// out and named in `left_out`.
std::vector<Companion> read_companions(const std::filesystem::path& folder,
                                       std::vector<std::string>* left_out = nullptr);

}  // namespace sluice::checkpoint
