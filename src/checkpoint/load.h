// Loading a checkpoint on any number of ranks: values by (bucket, interval), from whatever files hold them.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

namespace sluice::checkpoint {

enum class State : uint8_t { kMaster, kExpAvg, kExpAvgSq };

// Files are opened, and their checksums held against the manifest, when something of them is first read; a
// rank that resumes reads only the files that overlap what it owns. Not thread-safe.
class Checkpoint {
 public:
  // Reads the manifest. base::InputError when the directory holds none or it is invalid.
  explicit Checkpoint(std::filesystem::path directory);

  const std::filesystem::path& directory() const { return directory_; }
  const Manifest& manifest() const { return manifest_; }

  // InputError naming the values that differ and what to set.
  void require_model(const model::Shape& shape, TensorType type) const;

  // Elements `interval` of a bucket's flat array. InputError naming the file when it is missing, damaged or
  // of another shape or type. Element must be the manifest's type: float or double.
  template <typename Element>
  void read(int bucket, base::Interval interval, State state, Element* values);

  // Opens and checks every file: what `read` would find out late.
  void verify();

 private:
  const SafetensorsFile& file(size_t index);

  std::filesystem::path directory_;
  Manifest manifest_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;  // null until needed
};

}  // namespace sluice::checkpoint
