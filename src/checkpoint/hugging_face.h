// Hugging Face folders (config.json, safetensors) in and out of the flat order of model::ParameterTable.
// At most one tensor is in memory at a time; files are mapped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/interval.h"
#include "base/json.h"
#include "checkpoint/companions.h"
#include "checkpoint/safetensors.h"
#include "model/hugging_face.h"

namespace sluice::checkpoint {

// One number for each of a model's parameters, under Hugging Face's tensor names, opened for reading: the
// files STEM.safetensors, or the shards that STEM.safetensors.index.json lists. F32, BF16 or F16, widened
// exactly; stacks of experts' matrices may be MXFP4.
class TensorFolder {
 public:
  // Reads every header. base::InputError naming file and tensor when one is missing, has another shape than
  // `table` asks for or another type, or is not part of the model (rotary inv_freq buffers and the head of a
  // tied model are passed over).
  TensorFolder(std::filesystem::path folder, std::string stem, model::ParameterTable table);

  const std::filesystem::path& folder() const { return folder_; }
  const model::ParameterTable& table() const { return table_; }
  // The type of the first weight.
  TensorType type() const { return type_; }

  // Elements `interval` of a bucket's flat array. InputError naming file and tensor when one is not finite.
  // Thread-safe.
  void read(int bucket, base::Interval interval, float* values) const {
    read(table_.buckets[static_cast<size_t>(bucket)], interval, values);
  }
  // The same of a bucket of a table of this model however it is tuned. Adapters stay as they are.
  void read(const model::Bucket& bucket, base::Interval interval, float* values) const;

 private:
  struct Source {
    const SafetensorsFile* file = nullptr;
    const TensorInfo* tensor = nullptr;
    // Of a matrix in MXFP4 (mxfp4.h), whose blocks `tensor` has; else null.
    const SafetensorsFile* scales_file = nullptr;
    const TensorInfo* scales = nullptr;
  };

  void open_files(const std::string& stem);
  void locate_tensors();
  void require_no_others() const;
  const TensorInfo* look_for(const std::string& name, const SafetensorsFile*& file) const;
  Source find(const model::HuggingFaceTensor& tensor) const;
  std::optional<Source> find_mxfp4(const model::HuggingFaceTensor& tensor) const;
  void read(const Source& source, const model::HuggingFaceTensor& tensor, base::Interval inside,
            float* to) const;

  std::filesystem::path folder_;
  model::ParameterTable table_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Source> sources_;  // by Hugging Face name
  TensorType type_ = TensorType::kFloat32;
};

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
  TensorType type = TensorType::kFloat32;      // or kBFloat16
  int64_t max_shard_bytes = int64_t{5} << 30;  // a file's tensors; one larger tensor has its own file
  std::vector<Companion> companions;  // files that go with the model; config.json is made from theirs
  int64_t least_positions = 0;        // these two as in ExportedConfig
  int64_t positions = 0;
  std::string prefix;  // of the tensors' names
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
