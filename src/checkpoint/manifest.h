// manifest.json makes a directory of rank files a checkpoint. It is written last, so a directory without it
// is half-written and counts for nothing. It holds the checksums of all other files and its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/interval.h"
#include "base/json.h"
#include "checkpoint/tensor_type.h"
#include "model/parameters.h"
#include "storage/location.h"

namespace sluice::checkpoint {

// Files are not as they were written; an older checkpoint may still be whole. The message names the file, the
// fault and the way out.
class DamagedCheckpoint : public base::InputError {
 public:
  // `fault` names the file.
  explicit DamagedCheckpoint(const std::string& fault);
};

// A rank's file, or a file that several checkpoints share.
struct FileRecord {
  std::string name;  // "rank-0003.safetensors"; shared: "0123456789abcdef.safetensors"
  int64_t bytes = 0;
  uint64_t checksum = 0;                  // base::hash_bytes of the whole file
  std::optional<uint64_t> header;         // the header's hash, if the header has block checksums (blocks.h)
  std::vector<base::Interval> intervals;  // by bucket: elements in the file
};

struct Manifest {
  int64_t step = 0;  // optimizer steps done
  int world_size = 1;
  model::Model model;
  TensorType type = TensorType::kFloat32;  // masters' and Adam states' type: kFloat32 or kFloat64
  std::vector<FileRecord> files;
  // Slices that have not changed since an earlier checkpoint, in kSharedDirectory beside this checkpoint.
  // Each file is named by its header's checksum, which covers all of its data.
  std::vector<FileRecord> shared;
  std::vector<FileRecord> companions;  // in kCompanionDirectory, without intervals
  base::Json sampler;                  // opaque here, like the next four
  base::Json rollout;
  base::Json corpora;
  base::Json calibration;
  std::string config;  // the run's resolved TOML
  // The last evaluation, if any: after how many steps it was made ("step"), and a number that is lower for
  // better models ("measure").
  base::Json evaluation;
  bool hashed = true;  // false: the format's first version, in which damage may go unnoticed
};

// The companions' directory in a checkpoint.
inline constexpr const char* kCompanionDirectory = "model";

// The directory of shared files, beside a location's checkpoints.
inline constexpr const char* kSharedDirectory = "shared";

// "rank-0003.safetensors".
std::string rank_file_name(int rank);
// The name of a shared file whose header has this checksum.
std::string shared_file_name(uint64_t header);

// Writes "sluice.checkpoint/3", or /2 without shared files, and reads both and /1, which has no hash. Reading
// throws base::InputError naming `name` and the fault unless the hash is that of the content and the files
// are those of ranks 0 to world_size - 1. All intervals together must cover every bucket of the shape exactly
// once.
base::Json to_json(const Manifest& manifest);
Manifest manifest_from_json(const base::Json& json, const std::string& name);

// Reads <directory>/manifest.json. base::InputError if it is absent (the checkpoint is not committed) or a
// newer program wrote it. DamagedCheckpoint if it is not as it was written, or belongs to another step than
// the directory's name.
Manifest read_manifest(const storage::Location& directory);

// The measure of an evaluation that was made at this very step; none otherwise.
std::optional<double> measure_at_step(const Manifest& manifest);

// Suffix of a committed directory while a new checkpoint of the same step is written.
inline constexpr std::string_view kPreviousSuffix = ".previous";

// The step of a directory called "step-N" or "step-N.previous"; none for other names.
std::optional<int64_t> step_of_directory(const std::string& name);

}  // namespace sluice::checkpoint
