// Safetensors files of a folder in the flat order of model::ParameterTable. Files are mapped.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/interval.h"
#include "checkpoint/block_scaled.h"
#include "checkpoint/file_names.h"
#include "checkpoint/nf4.h"
#include "checkpoint/safetensors.h"
#include "model/hugging_face.h"

namespace sluice::checkpoint {

// Facts in config.json about files, beside the model's shape.
struct TensorHints {
  int64_t further_layers = 0;               // layers behind the model's, which predict further tokens
  std::array<int64_t, 2> scale_block = {};  // rows and columns that share a scale; 0: not given
};

// A model's tensors under Hugging Face's names, opened for reading: one number for each parameter. Files are
// STEM.safetensors, or the shards that STEM.safetensors.index.json lists. Types F32, BF16 and F16 are widened
// exactly. Stacked expert matrices may be MXFP4; any matrix may be F8_E4M3 with scales (block_scaled.h), NF4
// (nf4.h) or int8 as bitsandbytes saves it.
class TensorFolder {
 public:
  // Reads every header. base::InputError naming file and tensor if a tensor is missing, has another shape or
  // type than `table` allows, or is neither the model's nor carried. A tied model's head must equal the
  // embedding.
  TensorFolder(std::filesystem::path folder, std::string stem, model::ParameterTable table,
               const TensorHints& hints = {});

  const std::filesystem::path& folder() const { return folder_; }
  const model::ParameterTable& table() const { return table_; }
  // The type of most elements, and the tensors of other types by their names in files. Types of fewer than 16
  // bits count as BF16.
  TensorType type() const { return type_; }
  std::map<std::string, TensorType> other_types() const;
  const FileNames& names() const { return names_; }
  bool tied_head() const { return tied_head_; }
  bool quantised() const;
  std::array<int64_t, 2> scale_block() const { return hints_.scale_block; }

  // A tensor that Sluice neither computes with nor changes: a vision tower's, one of layers that predict
  // further tokens, or a buffer that is computed anew.
  struct Carried {
    const SafetensorsFile* file = nullptr;
    const TensorInfo* tensor = nullptr;
  };
  const std::vector<Carried>& carried() const { return carried_; }

  // For a model that trains the MTP layer of these files: InputError if one of the layer's tensors is missing
  // or has another shape, or if the files' copies of embedding and head beside it differ from the model's.
  void require_mtp(const model::ParameterTable& table) const;

  // Elements `interval` of a bucket's flat array. InputError naming file and tensor if an element is not
  // finite. Thread-safe.
  void read(int bucket, base::Interval interval, float* values) const {
    read(table_.buckets[static_cast<size_t>(bucket)], interval, values);
  }
  // The same for a bucket of another table of this model, with any adapters and head. Adapters are left
  // untouched, as is a head of numbers that the files lack.
  void read(const model::Bucket& bucket, base::Interval interval, float* values) const;

 private:
  struct Source {
    const SafetensorsFile* file = nullptr;
    const TensorInfo* tensor = nullptr;
    // MXFP4 (mxfp4.h; `tensor` has the blocks) or 8-bit floats: the scales; int8: the rows' maxima; else
    // null.
    const SafetensorsFile* scales_file = nullptr;
    const TensorInfo* scales = nullptr;
    std::optional<BlockScaled> blocks;               // 8-bit floats
    std::shared_ptr<const Nf4Matrix> nf4 = nullptr;  // 4 bits, by bitsandbytes
  };

  void open_files(const std::string& stem);
  void locate_tensors();
  void sort_others();
  std::optional<int64_t> layer_of(const std::string& name) const;
  bool is_carried(const std::string& name) const;
  void refuse_further_layer(const SafetensorsFile& file, const std::string& name) const;
  bool is_of_another_head(const std::string& name) const;
  void require_tied(const Source& head) const;
  void require_equal(const Source& copy, const std::string& original, const std::string& meaning) const;
  Source look_for(const std::string& name) const;
  std::optional<Source> source_of(const model::Parameter& parameter,
                                  const model::HuggingFaceTensor& tensor) const;
  Source find(const model::HuggingFaceTensor& tensor) const;
  Source find_mtp(const model::HuggingFaceTensor& tensor) const;
  std::optional<Source> find_mxfp4(const model::HuggingFaceTensor& tensor) const;
  void find_scales(Source& source) const;
  void find_maxima(Source& source) const;
  void find_nf4(const model::HuggingFaceTensor& tensor, Source& source) const;
  void read(const Source& source, const model::HuggingFaceTensor& tensor, base::Interval inside,
            float* to) const;

  std::filesystem::path folder_;
  model::ParameterTable table_;
  TensorHints hints_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::unordered_map<std::string, Source> all_;  // by name
  FileNames names_;
  std::map<std::string, Source> sources_;  // the model's own, by name in files
  std::vector<Carried> carried_;
  TensorType type_ = TensorType::kFloat32;
  bool tied_head_ = false;
};

}  // namespace sluice::checkpoint
