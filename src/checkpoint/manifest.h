// manifest.json: what makes a directory of rank files a checkpoint. It is written last, so a directory
// without it is half-written and counts for nothing. It holds the checksums of all other files and its own.
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

// What lies on disk is not what was written: whoever has an older checkpoint can go on from that one. The
// message names the file, the fault and the way out.
class DamagedCheckpoint : public base::InputError {
 public:
  // `fault` names the file.
  explicit DamagedCheckpoint(const std::string& fault);
};

// One rank's file, or one of those that several checkpoints share.
struct FileRecord {
  std::string name;  // "rank-0003.safetensors"; "0123456789abcdef.safetensors" of a shared one
  int64_t bytes = 0;
  uint64_t checksum = 0;           // base::hash_bytes of the whole file
  std::optional<uint64_t> header;  // of its header, which then has checksums of all its blocks (blocks.h)
  std::vector<base::Interval> intervals;  // by bucket: the elements it holds
};

struct Manifest {
  int64_t step = 0;  // optimiser steps done
  int world_size = 1;
  model::Shape shape;
  TensorType type = TensorType::kFloat32;  // of masters and Adam states: kFloat32 or kFloat64
  std::vector<FileRecord> files;
  // What has not changed since an earlier checkpoint, in kSharedDirectory beside this one's; named by their
  // headers' checksums, which vouch for all that the files hold.
  std::vector<FileRecord> shared;
  std::vector<FileRecord> companions;  // in kCompanionDirectory, without intervals
  base::Json sampler;                  // opaque here, as are the next four
  base::Json rollout;
  base::Json corpora;
  base::Json calibration;
  std::string config;  // the run's resolved TOML
  // The last evaluation, if any: after how many steps it was made ("step"), and a number that is lower for
  // better models ("measure").
  base::Json evaluation;
  bool hashed = true;  // false: read from the first version of the format, in which damage may go unnoticed
};

// Where in a checkpoint its model's companions lie.
inline constexpr const char* kCompanionDirectory = "model";

// Beside the checkpoints of a place: what several of them refer to.
inline constexpr const char* kSharedDirectory = "shared";

// "rank-0003.safetensors".
std::string rank_file_name(int rank);
// Of a shared file whose header has this checksum.
std::string shared_file_name(uint64_t header);

// "sluice.checkpoint/3", or /2 where nothing is shared, and back; /1, which has no hash, is read as well.
// from_json throws base::InputError naming `name` and the fault unless the hash is that of the content, the
// files are those of ranks 0 to world_size - 1, and all intervals together cover every bucket of the shape
// exactly once.
base::Json to_json(const Manifest& manifest);
Manifest manifest_from_json(const base::Json& json, const std::string& name);

// <directory>/manifest.json. base::InputError when absent (the directory holds no committed checkpoint) or
// written by a newer program; DamagedCheckpoint when it is not as it was written, or belongs to another step
// than the directory's name says.
Manifest read_manifest(const storage::Location& directory);

// The measure of an evaluation that was made at this very step; nothing otherwise.
std::optional<double> measure_at_step(const Manifest& manifest);

// What a directory is called while a new checkpoint of its step is written.
inline constexpr std::string_view kPreviousSuffix = ".previous";

// The step of a directory called "step-N" or "step-N.previous"; nothing for other names.
std::optional<int64_t> step_of_directory(const std::string& name);

}  // namespace sluice::checkpoint
