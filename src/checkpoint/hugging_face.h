// Hugging Face folders (config.json, safetensors) in and out of the flat order of model::ParameterTable.
// At most one tensor is in memory at a time; files are mapped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/interval.h"
#include "base/json.h"
#include "checkpoint/companions.h"
#include "checkpoint/folder_record.h"
#include "checkpoint/tensor_folder.h"
#include "model/hugging_face.h"

namespace sluice::checkpoint {

// The stem of a model's weights.
inline constexpr const char* kWeightsStem = "model";

// A model folder opened for reading: config.json and its weights.
class HuggingFaceModel {
 public:
  // Errors as TensorFolder's; InputError, too, when config.json asks for what Sluice does not know.
  explicit HuggingFaceModel(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return weights_.folder(); }
  const model::ParameterTable& table() const { return weights_.table(); }
  const model::Shape& shape() const { return table().shape; }
  const base::Json& config() const { return config_; }
  TensorType type() const { return weights_.type(); }
  const TensorFolder& weights() const { return weights_; }
  FolderRecord record() const;
  void read(int bucket, base::Interval interval, float* values) const {
    weights_.read(bucket, interval, values);
  }
  void read(const model::Bucket& bucket, base::Interval interval, float* values) const {
    weights_.read(bucket, interval, values);
  }

 private:
  base::Json config_;
  TensorFolder weights_;
};

// Whether `folder` has weights beside its config.json.
bool has_hugging_face_weights(const std::filesystem::path& folder);

struct ExportOptions {
  TensorType type = TensorType::kFloat32;      // or kBFloat16 or kFloat16
  int64_t max_shard_bytes = int64_t{5} << 30;  // a file's tensors; one larger tensor has its own file
  std::vector<Companion> companions;  // files that go with the model; config.json is made from theirs
  int64_t least_positions = 0;        // these two as in ExportedConfig
  int64_t positions = 0;
  FolderRecord record;                       // of the folder that the model came in
  const SafetensorsFile* carried = nullptr;  // tensors to add as they are
  std::string prefix;                        // of the tensors' names
  // Writes what else belongs into the folder, before it appears.
  std::function<void(const std::filesystem::path& folder)> add;
};

// Gives elements `interval` of a bucket's flat array.
using ParameterSource = std::function<void(int bucket, base::Interval interval, float* values)>;

// Writes STEM.safetensors, or shards with their index, into `folder`: what TensorFolder reads. `type` and
// `max_shard_bytes` are those of `options`. RunError on a full or unwritable disk.
void write_tensors(const std::filesystem::path& folder, const std::string& stem,
                   const model::ParameterTable& table, const ParameterSource& source,
                   const ExportOptions& options);

// The values that write_tensors leaves in files, read back: rounded to the types there. `table` outlives it.
ParameterSource as_written(const model::ParameterTable& table, ParameterSource source,
                           const ExportOptions& options);

// Writes config.json, model.safetensors or shards with their index, and the companions. The folder appears
// only when complete. InputError when `folder` exists and is not empty; RunError on a full or unwritable
// disk.
void export_hugging_face(const std::filesystem::path& folder, const model::ParameterTable& table,
                         const ParameterSource& source, const ExportOptions& options = {});

// Writes adapter_model.safetensors and adapter_config.json, which PEFT reads; the latter names `base` as the
// model that they belong to. `options` give the type alone. Otherwise as export_hugging_face; InputError,
// too, when the model has no adapters.
void export_adapters(const std::filesystem::path& folder, const model::ParameterTable& table,
                     const ParameterSource& source, const std::string& base,
                     const ExportOptions& options = {});

}  // namespace sluice::checkpoint
