#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/hugging_face.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using base::InputError;
using base::Interval;
using base::text;

fs::path single_file(const fs::path& folder, const std::string& stem) {
  return folder / (stem + ".safetensors");
}
fs::path index_file(const fs::path& folder, const std::string& stem) {
  return folder / (stem + ".safetensors.index.json");
}

std::vector<int64_t> file_shape(const model::Parameter& parameter, const model::HuggingFaceTensor& tensor) {
  if (tensor.vector) return {tensor.rows};
  if (tensor.transposed) return {parameter.columns, tensor.rows};
  return {tensor.rows, parameter.columns};
}

// The shard names of an index, each once.
std::set<std::string> indexed_files(const fs::path& index_path) {
  const base::Json index = base::read_json(index_path);
  const base::Json map = base::require<base::Json>(index, "weight_map", index_path.string());
  std::set<std::string> names;
  for (const auto& [tensor, file] : map.items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name.find('/') != std::string::npos) {
      throw InputError(text(index_path.string(), ": tensor '", tensor, "' is said to be in ",
                            base::excerpt(file), ", which is no file name"));
    }
    names.insert(name);
  }
  return names;
}

// Reads elements [begin, begin + count) of the row-major [rows, columns] matrix whose transpose is in the
// file: tiles keep both sides within the cache.
void read_transposed(const std::byte* data, TensorType type, int64_t rows, int64_t columns, Interval interval,
                     float* values) {
  constexpr int64_t kTile = 64;
  const int64_t bytes = size_of(type);
  const int64_t first_row = interval.begin / columns;
  const int64_t last_row = (interval.end - 1) / columns;
  float block[kTile];
  for (int64_t row0 = first_row; row0 <= last_row; row0 += kTile) {
    const int64_t height = std::min(kTile, last_row + 1 - row0);
    for (int64_t column = 0; column < columns; ++column) {
      to_floats(data + (column * rows + row0) * bytes, type, height, block);
      for (int64_t i = 0; i < height; ++i) {
        const int64_t element = (row0 + i) * columns + column;
        if (element >= interval.begin && element < interval.end) values[element - interval.begin] = block[i];
      }
    }
  }
}

void require_finite(std::span<const float> values, const fs::path& file, const std::string& tensor) {
  const auto found = std::find_if_not(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
  if (found == values.end()) return;
  throw InputError(text(file.string(), ": tensor '", tensor, "' holds ", *found,
                        ": no loss comes of such weights; fetch or save the model again"));
}

bool passed_over(const std::string& name, bool tied) {
  return name.ends_with("rotary_emb.inv_freq") || (tied && name == "lm_head.weight");
}

base::Json read_config(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder / "config.json", ignored)) {
    throw InputError(text(folder.string(), " has no config.json: name a Hugging Face model folder"));
  }
  return base::read_json(folder / "config.json");
}

}  // namespace

bool has_hugging_face_weights(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(single_file(folder, kWeightsStem), ignored) ||
         fs::exists(index_file(folder, kWeightsStem), ignored);
}

HuggingFaceModel::HuggingFaceModel(const fs::path& folder)
    : config_(read_config(folder)),
      weights_(folder, kWeightsStem,
               model::parameter_table(
                   model::shape_from_hugging_face(config_, (folder / "config.json").string()))) {}

TensorFolder::TensorFolder(fs::path folder, std::string stem, model::ParameterTable table)
    : folder_(std::move(folder)), table_(std::move(table)) {
  open_files(stem);
  locate_tensors();
}

void TensorFolder::open_files(const std::string& stem) {
  const fs::path single = single_file(folder_, stem);
  const fs::path index = index_file(folder_, stem);
  std::error_code ignored;
  if (fs::exists(index, ignored)) {
    for (const std::string& name : indexed_files(index)) {
      files_.push_back(std::make_unique<SafetensorsFile>(folder_ / name));
    }
  } else if (fs::exists(single, ignored)) {
    files_.push_back(std::make_unique<SafetensorsFile>(single));
  } else {
    throw InputError(text(folder_.string(), " has neither ", single.filename().string(), " nor ",
                          index.filename().string(),
                          ": convert older weights with save_pretrained(safe_serialization=True)"));
  }
}

TensorFolder::Source TensorFolder::find(const std::string& name, const std::vector<int64_t>& shape) const {
  for (const auto& file : files_) {
    const TensorInfo* tensor = file->find(name);
    if (tensor == nullptr) continue;
    const std::string where = text(file->location().string(), ": tensor '", name, "'");
    if (tensor->shape != shape) {
      throw InputError(text(where, " has shape ", shape_text(tensor->shape), ", config.json asks for ",
                            shape_text(shape), ": the two belong to different models"));
    }
    if (tensor->type == TensorType::kOther || tensor->type == TensorType::kFloat64) {
      throw InputError(text(where, " is ", tensor->format_type,
                            ", expected F32, BF16 or F16: save the model in one of these"));
    }
    return {file.get(), tensor};
  }
  throw InputError(text(folder_.string(), ": tensor '", name, "' is missing: the folder is incomplete",
                        " or holds another architecture"));
}

void TensorFolder::locate_tensors() {
  for (const model::Bucket& bucket : table_.buckets) {
    for (const model::Parameter& parameter : bucket.parameters) {
      for (const model::HuggingFaceTensor& tensor : model::hugging_face_tensors(bucket, parameter)) {
        sources_[tensor.name] = find(tensor.name, file_shape(parameter, tensor));
      }
    }
  }
  require_no_others();
  type_ = sources_.at("model.embed_tokens.weight").tensor->type;
}

void TensorFolder::require_no_others() const {
  for (const auto& file : files_) {
    for (const TensorInfo& tensor : file->tensors()) {
      if (sources_.contains(tensor.name) || passed_over(tensor.name, table_.shape.tie_embeddings)) continue;
      throw InputError(text(file->location().string(), ": tensor '", tensor.name,
                            "' is not part of this model: Sluice reads plain LLaMA-family weights",
                            " (no biases, adapters or quantisation)"));
    }
  }
}

void TensorFolder::read(const model::Bucket& bucket, Interval interval, float* values) const {
  for (const model::Parameter& parameter : bucket.parameters) {
    for (const model::HuggingFaceTensor& tensor : model::hugging_face_tensors(bucket, parameter)) {
      const int64_t begin = parameter.offset + tensor.row_begin * parameter.columns;
      const Interval whole{begin, begin + tensor.rows * parameter.columns};
      const Interval common = base::intersect(whole, interval);
      if (common.empty() || parameter.factor != model::Factor::kNone) continue;
      const auto& [file, info] = sources_.at(tensor.name);
      const Interval inside{common.begin - begin, common.end - begin};
      float* to = values + (common.begin - interval.begin);
      if (tensor.transposed) {
        read_transposed(file->data(*info), info->type, tensor.rows, parameter.columns, inside, to);
      } else {
        to_floats(file->data(*info) + inside.begin * size_of(info->type), info->type, inside.size(), to);
      }
      require_finite({to, static_cast<size_t>(inside.size())}, file->location().path(), tensor.name);
    }
  }
}

}  // namespace sluice::checkpoint
