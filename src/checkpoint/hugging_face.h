// Reads and writes Hugging Face folders (config.json, safetensors) in the flat order of
// model::ParameterTable. At most one tensor is in memory at a time; files are mapped.
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
#include "checkpoint/quantized_export.h"
#include "checkpoint/tensor_folder.h"
#include "model/hugging_face.h"

namespace sluice::checkpoint {

// Base name of the files with a model's weights.
inline constexpr const char* kWeightsStem = "model";

// A model folder opened for reading: config.json and its weights.
class HuggingFaceModel {
 public:
  // Errors as TensorFolder's; also InputError if config.json has values that Sluice does not support.
  explicit HuggingFaceModel(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return weights_.folder(); }
  const model::ParameterTable& table() const { return weights_.table(); }
  const model::Model& model() const { return table().model; }
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
  int64_t max_shard_bytes = int64_t{5} << 30;  // limit for a file's tensors; a larger tensor has its own
  std::vector<Companion> companions;           // the model's companions; config.json is made from theirs
  int64_t least_positions = 0;                 // these two as in ExportedConfig
  int64_t positions = 0;
  FolderRecord record;                              // describes the folder that the model was imported from
  Quantization quantization = Quantization::kNone;  // of blocks' linear modules; not of experts
  const SafetensorsFile* carried = nullptr;         // tensors to add as they are
  std::string prefix;                               // put before the tensors' names
  // Writes further files into the folder before it appears.
  std::function<void(const std::filesystem::path& folder)> add;
};

// Gives elements `interval` of a bucket's flat array.
using ParameterSource = std::function<void(int bucket, base::Interval interval, float* values)>;

// Writes STEM.safetensors, or shards with their index, into `folder`; TensorFolder reads them. Uses `type`,
// `record`, `carried`, `prefix` and `max_shard_bytes` of `options`. RunError on a full or unwritable disk.
void write_tensors(const std::filesystem::path& folder, const std::string& stem,
                   const model::ParameterTable& table, const ParameterSource& source,
                   const ExportOptions& options);

// The values that a reader of write_tensors' files gets, rounded to the types there. `table` outlives it.
ParameterSource as_written(const model::ParameterTable& table, ParameterSource source,
                           const ExportOptions& options);

// Writes config.json, model.safetensors or shards with their index, and the companions. The folder appears
// only when complete. InputError if `folder` exists and is not empty; RunError on a full or unwritable
// disk.
void export_hugging_face(const std::filesystem::path& folder, const model::ParameterTable& table,
                         const ParameterSource& source, const ExportOptions& options = {});

// Writes adapter_model.safetensors and adapter_config.json for PEFT; the latter names `base` as the adapters'
// base model. Uses the type and the record's names of `options`. Otherwise as export_hugging_face.
// InputError, too, if the model has no adapters.
void export_adapters(const std::filesystem::path& folder, const model::ParameterTable& table,
                     const ParameterSource& source, const std::string& base,
                     const ExportOptions& options = {});

}  // namespace sluice::checkpoint
