#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "checkpoint/hugging_face.h"
#include "checkpoint/mxfp4.h"

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

// Reads elements `interval` of stored rows that stand otherwise in the file. Tiles of rows, between which lie
// few elements of the file, keep both sides within the cache. `load(first, count, values)` reads elements of
// the file that follow each other.
template <typename Load>
void read_reordered(const model::HuggingFaceTensor& tensor, Interval interval, float* values, Load load) {
  constexpr int64_t kTile = 64, kMostStride = 2;
  const int64_t columns = tensor.columns, height_of_half = tensor.order.block_rows / tensor.order.halves;
  const int64_t stride = tensor.order.row_stride;
  const int64_t last_row = (interval.end - 1) / columns;
  SLUICE_ASSERT(stride <= kMostStride, text("rows ", stride, " apart"));
  float block[kTile * kMostStride];
  for (int64_t row0 = interval.begin / columns; row0 <= last_row;) {
    const int64_t end_of_half = (row0 / height_of_half + 1) * height_of_half;
    const int64_t height = std::min({kTile, last_row + 1 - row0, end_of_half - row0});
    for (int64_t column = 0; column < columns; ++column) {
      load(tensor.order.first_of(row0) + column * tensor.order.column_stride, (height - 1) * stride + 1,
           block);
      for (int64_t i = 0; i < height; ++i) {
        const int64_t element = (row0 + i) * columns + column;
        if (element >= interval.begin && element < interval.end)
          values[element - interval.begin] = block[i * stride];
      }
    }
    row0 += height;
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
  return base::read_python_json(folder / "config.json");
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

const TensorInfo* TensorFolder::look_for(const std::string& name, const SafetensorsFile*& file) const {
  for (const auto& each : files_) {
    if (const TensorInfo* tensor = each->find(name)) {
      file = each.get();
      return tensor;
    }
  }
  return nullptr;
}

namespace {

void require_shape(const std::string& where, const std::vector<int64_t>& shape,
                   const std::vector<int64_t>& expected) {
  if (shape == expected) return;
  throw InputError(text(where, " has shape ", shape_text(shape), ", config.json asks for ",
                        shape_text(expected), ": the two belong to different models"));
}

}  // namespace

// A stack of experts' matrices in MXFP4 is two tensors of bytes.
std::optional<TensorFolder::Source> TensorFolder::find_mxfp4(const model::HuggingFaceTensor& tensor) const {
  Source source;
  const std::string names[] = {tensor.name + "_blocks", tensor.name + "_scales"};
  source.tensor = look_for(names[0], source.file);
  if (source.tensor == nullptr || tensor.shape.size() != 3) return std::nullopt;
  source.scales = look_for(names[1], source.scales_file);
  if (source.scales == nullptr) {
    throw InputError(text(folder_.string(), ": tensor '", names[1], "' is missing beside '", names[0],
                          "': the folder is incomplete"));
  }
  const int64_t experts = tensor.shape[0], in = tensor.shape[1], out = tensor.shape[2];
  const auto where = [&](const SafetensorsFile& file, const std::string& name) {
    return text(file.location().string(), ": tensor '", name, "'");
  };
  if (in % kMxfp4Block != 0) {
    throw InputError(text(where(*source.file, names[0]), " holds rows of ", in, ", no multiple of MXFP4's ",
                          kMxfp4Block, ": save the model in BF16"));
  }
  const int64_t blocks = in / kMxfp4Block;
  require_shape(where(*source.file, names[0]), source.tensor->shape, {experts, out, blocks, kMxfp4Block / 2});
  require_shape(where(*source.scales_file, names[1]), source.scales->shape, {experts, out, blocks});
  for (const TensorInfo* each : {source.tensor, source.scales}) {
    if (each->format_type == "U8") continue;
    throw InputError(
        text(where(*source.file, each->name), " is ", each->format_type, ", expected MXFP4's U8"));
  }
  return source;
}

TensorFolder::Source TensorFolder::find(const model::HuggingFaceTensor& tensor) const {
  Source source;
  source.tensor = look_for(tensor.name, source.file);
  if (source.tensor == nullptr) {
    if (const std::optional<Source> packed = find_mxfp4(tensor)) return *packed;
    throw InputError(text(folder_.string(), ": tensor '", tensor.name,
                          "' is missing: the folder is incomplete", " or holds another architecture"));
  }
  const std::string where = text(source.file->location().string(), ": tensor '", tensor.name, "'");
  require_shape(where, source.tensor->shape, tensor.shape);
  if (source.tensor->type == TensorType::kOther || source.tensor->type == TensorType::kFloat64) {
    throw InputError(text(where, " is ", source.tensor->format_type,
                          ", expected F32, BF16 or F16: save the model in one of these"));
  }
  return source;
}

void TensorFolder::locate_tensors() {
  for (const model::Bucket& bucket : table_.buckets) {
    for (const model::Parameter& parameter : bucket.parameters) {
      for (const model::HuggingFaceTensor& tensor : model::hugging_face_tensors(bucket, parameter))
        sources_[tensor.name] = find(tensor);
    }
  }
  require_no_others();
  const model::Bucket& embedding = table_.embedding();
  type_ = sources_.at(model::hugging_face_tensors(embedding, embedding.parameters.front()).front().name)
              .tensor->type;
}

void TensorFolder::require_no_others() const {
  std::set<std::string_view> known;
  for (const auto& [name, source] : sources_) {
    known.insert(source.tensor->name);
    if (source.scales != nullptr) known.insert(source.scales->name);
  }
  for (const auto& file : files_) {
    for (const TensorInfo& tensor : file->tensors()) {
      if (known.contains(tensor.name) || passed_over(tensor.name, table_.shape.tie_embeddings)) continue;
      throw InputError(text(file->location().string(), ": tensor '", tensor.name,
                            "' is not part of this model: Sluice reads plain LLaMA-family weights",
                            " (no biases, adapters or quantisation)"));
    }
  }
}

void TensorFolder::read(const Source& source, const model::HuggingFaceTensor& tensor, Interval inside,
                        float* to) const {
  const std::byte* data = source.file->data(*source.tensor);
  const TensorType type = source.tensor->type;
  if (source.scales != nullptr) {
    // Its elements are numbered as those of the tensor that it stands for, [experts, in, out].
    const int64_t in = tensor.shape[1], out = tensor.shape[2];
    const Mxfp4Matrix matrix{data, source.scales_file->data(*source.scales), in, out};
    const auto load = [&](int64_t first, int64_t count, float* values) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t element = first + i;
        values[i] = matrix.value(element / (in * out), element / out % in, element % out);
      }
    };
    if (!tensor.straight()) return read_reordered(tensor, inside, to, load);
    return load(inside.begin, inside.size(), to);
  }
  const auto load = [&](int64_t first, int64_t count, float* values) {
    to_floats(data + first * size_of(type), type, count, values);
  };
  if (!tensor.straight()) return read_reordered(tensor, inside, to, load);
  load(inside.begin, inside.size(), to);
}

void TensorFolder::read(const model::Bucket& bucket, Interval interval, float* values) const {
  for (const model::Parameter& parameter : bucket.parameters) {
    for (const model::HuggingFaceTensor& tensor : model::hugging_face_tensors(bucket, parameter)) {
      const int64_t begin = parameter.offset + tensor.row_begin * parameter.columns;
      const Interval whole{begin, begin + tensor.rows * parameter.columns};
      const Interval common = base::intersect(whole, interval);
      if (common.empty() || !parameter.is_published()) continue;
      const Source& source = sources_.at(tensor.name);
      const Interval inside{common.begin - begin, common.end - begin};
      float* to = values + (common.begin - interval.begin);
      read(source, tensor, inside, to);
      require_finite({to, static_cast<size_t>(inside.size())}, source.file->location().path(), tensor.name);
    }
  }
}

}  // namespace sluice::checkpoint
