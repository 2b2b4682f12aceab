#include "checkpoint/tensor_folder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/mtp_copies.h"
#include "checkpoint/mxfp4.h"
#include "model/border_rows.h"
#include "model/tuning.h"

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
      throw InputError(text(index_path.string(), ": tensor '", tensor, "' should be in ", base::excerpt(file),
                            ", which is no file name"));
    }
    names.insert(name);
  }
  return names;
}

// Reads elements `interval` of stored rows whose order in the file differs. It works in tiles of rows with
// few file elements between them, so that both sides stay within the cache. `load(first, count, values)`
// reads consecutive elements of the file.
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

}  // namespace

TensorFolder::TensorFolder(fs::path folder, std::string stem, model::ParameterTable table,
                           const TensorHints& hints)
    : folder_(std::move(folder)), table_(std::move(table)), hints_(hints) {
  open_files(stem);
  names_ = find_names(table_, [&](const std::string& name) {
    const auto found = all_.find(name);
    return found == all_.end() ? nullptr : &found->second.tensor->shape;
  });
  locate_tensors();
  sort_others();
}

void TensorFolder::open_files(const std::string& stem) {
  const fs::path single = single_file(folder_, stem);
  const fs::path index = index_file(folder_, stem);
  std::error_code ignored;
  if (fs::exists(index, ignored)) {
    for (const std::string& name : indexed_files(index))
      files_.push_back(std::make_unique<SafetensorsFile>(folder_ / name));
  } else if (fs::exists(single, ignored)) {
    files_.push_back(std::make_unique<SafetensorsFile>(single));
  } else {
    throw InputError(text(folder_.string(), " has neither ", single.filename().string(), " nor ",
                          index.filename().string(),
                          ": convert older weights with save_pretrained(safe_serialization=True)"));
  }
  for (const auto& file : files_) {
    for (const TensorInfo& tensor : file->tensors()) {
      const auto [place, is_new] =
          all_.try_emplace(tensor.name, Source{.file = file.get(), .tensor = &tensor});
      if (is_new) continue;
      throw InputError(text(file->location().string(), ": tensor '", tensor.name, "' is in ",
                            place->second.file->location().string(),
                            ", too: remove the file that does not belong to the model"));
    }
  }
}

TensorFolder::Source TensorFolder::look_for(const std::string& name) const {
  const auto found = all_.find(name);
  return found == all_.end() ? Source{} : found->second;
}

namespace {

std::string where(const SafetensorsFile& file, const std::string& tensor) {
  return text(file.location().string(), ": tensor '", tensor, "'");
}

void require_shape(const std::string& name, const std::vector<int64_t>& shape,
                   const std::vector<int64_t>& expected) {
  if (shape == expected) return;
  throw InputError(text(name, " has shape ", shape_text(shape), ", config.json asks for ",
                        shape_text(expected), ": the two belong to different models"));
}

bool is_float8(const TensorInfo& tensor) { return tensor.format_type == "F8_E4M3"; }
bool is_int8(const TensorInfo& tensor) { return tensor.format_type == "I8"; }

// Suffixes to a module's name in files of bitsandbytes' Linear8bitLt: the absolute maxima of the matrix's
// rows, and a byte for the codes' layout.
constexpr std::string_view kMaxima = "SCB", kLayout = "weight_format";

// Replaces the last part of a name: "self_attn.q_proj.SCB" for "self_attn.q_proj.weight".
std::string beside(const std::string& tensor, std::string_view end) {
  return text(tensor.substr(0, tensor.rfind('.') + 1), end);
}

// Numbers of an int8 matrix: code times its row's maximum / 127, in the same arithmetic as bitsandbytes'
// int8_vectorwise_dequant.
void read_int8(const std::byte* codes, const float* maxima, int64_t columns, int64_t first, int64_t count,
               float* values) {
  constexpr float kPart = 0.007874015718698502F;
  for (int64_t i = 0; i < count; ++i) {
    const auto code = static_cast<float>(static_cast<int8_t>(codes[first + i]));
    values[i] = code * maxima[(first + i) / columns] * kPart;
  }
}

}  // namespace

// Finds a stack of experts' matrices in MXFP4, which is two tensors of bytes.
std::optional<TensorFolder::Source> TensorFolder::find_mxfp4(const model::HuggingFaceTensor& tensor) const {
  const std::string names[] = {tensor.name + "_blocks", tensor.name + "_scales"};
  Source source = look_for(names[0]);
  if (source.tensor == nullptr || tensor.shape.size() != 3) return std::nullopt;
  const Source scales = look_for(names[1]);
  if (scales.tensor == nullptr) {
    throw InputError(text(folder_.string(), ": tensor '", names[1], "' is missing beside '", names[0],
                          "': the folder is incomplete"));
  }
  source.scales = scales.tensor;
  source.scales_file = scales.file;
  const int64_t experts = tensor.shape[0], in = tensor.shape[1], out = tensor.shape[2];
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

// Finds the scales of a matrix of 8-bit floats.
void TensorFolder::find_scales(Source& source) const {
  const TensorInfo& tensor = *source.tensor;
  Source scales = look_for(tensor.name + "_scale_inv");
  if (scales.tensor == nullptr) scales = look_for(tensor.name + "_scale");
  if (scales.tensor == nullptr) {
    throw InputError(text(where(*source.file, tensor.name), " is F8_E4M3 without scales in '", tensor.name,
                          "_scale_inv': the folder is incomplete, or save the model in BF16"));
  }
  source.scales = scales.tensor;
  source.scales_file = scales.file;
  const std::string name = where(*scales.file, scales.tensor->name);
  if (size_of(scales.tensor->type) == 0 || scales.tensor->type == TensorType::kFloat64)
    throw InputError(text(name, " is ", scales.tensor->format_type, ", expected F32, BF16 or F16"));
  BlockScaled blocks{.values = source.file->data(tensor),
                     .scales = scales.file->data(*scales.tensor),
                     .scale_type = scales.tensor->type};
  if (!fit_blocks(tensor.shape, scales.tensor->shape, hints_.scale_block, blocks)) {
    const auto& [rows, columns] = hints_.scale_block;
    throw InputError(text(name, " has shape ", shape_text(scales.tensor->shape), ", which fits ",
                          shape_text(tensor.shape), " neither by row nor by blocks of ",
                          rows > 0 ? text(rows, " x ", columns) : "any size",
                          ": set weight_block_size of config.json's quantization_config"));
  }
  source.blocks = blocks;
}

// Finds the rows' maxima of an int8 matrix.
void TensorFolder::find_maxima(Source& source) const {
  const TensorInfo& tensor = *source.tensor;
  const Source maxima = look_for(beside(tensor.name, kMaxima));
  if (maxima.tensor == nullptr || tensor.shape.size() != 2) {
    throw InputError(text(where(*source.file, tensor.name), " is I8 without its rows' maxima in '",
                          beside(tensor.name, kMaxima),
                          "': the folder is incomplete, or save the model in BF16"));
  }
  const std::string name = where(*maxima.file, maxima.tensor->name);
  if (maxima.tensor->type != TensorType::kFloat32 || maxima.tensor->elements() != tensor.shape.front()) {
    throw InputError(text(name, " is ", maxima.tensor->format_type, " ", shape_text(maxima.tensor->shape),
                          ", expected F32 of ", tensor.shape.front(),
                          " elements, one for each row: save the model again with bitsandbytes"));
  }
  const Source layout = look_for(beside(tensor.name, kLayout));
  if (layout.tensor != nullptr && (layout.tensor->format_type != "U8" || layout.tensor->elements() != 1 ||
                                   *layout.file->data(*layout.tensor) != std::byte{0})) {
    throw InputError(text(where(*layout.file, layout.tensor->name),
                          " says that codes do not lie by rows: save the model again with bitsandbytes"));
  }
  source.scales = maxima.tensor;
  source.scales_file = maxima.file;
}

void TensorFolder::find_nf4(const model::HuggingFaceTensor& tensor, Source& source) const {
  source.nf4 = std::make_shared<const Nf4Matrix>(Nf4Matrix::Tensor{source.file, source.tensor}, tensor.shape,
                                                 [this](const std::string& name) -> Nf4Matrix::Tensor {
                                                   const Source part = look_for(name);
                                                   return {part.file, part.tensor};
                                                 });
}

TensorFolder::Source TensorFolder::find(const model::HuggingFaceTensor& tensor) const {
  Source source = look_for(tensor.name);
  if (source.tensor == nullptr) {
    if (const std::optional<Source> packed = find_mxfp4(tensor)) return *packed;
    throw InputError(text(folder_.string(), ": tensor '", tensor.name,
                          "' is missing: the folder is incomplete", " or holds another architecture"));
  }
  const std::string name = where(*source.file, tensor.name);
  if (source.tensor->format_type == "U8") {
    find_nf4(tensor, source);
    return source;
  }
  require_shape(name, source.tensor->shape, tensor.shape);
  if (is_float8(*source.tensor)) {
    find_scales(source);
  } else if (is_int8(*source.tensor)) {
    find_maxima(source);
  } else if (source.tensor->type == TensorType::kOther || source.tensor->type == TensorType::kFloat64) {
    throw InputError(text(
        name, " is ", source.tensor->format_type,
        ", expected F32, BF16, F16, F8_E4M3 with scales, or I8 with maxima: save the model in one of these"));
  }
  return source;
}

namespace {

// The type that a tensor's numbers have in computations.
TensorType widened(const TensorInfo& tensor) {
  return tensor.type == TensorType::kOther ? TensorType::kBFloat16 : tensor.type;
}

}  // namespace

void TensorFolder::locate_tensors() {
  std::map<TensorType, int64_t> elements;
  for (const model::Bucket& bucket : table_.buckets) {
    for (const model::Parameter& parameter : bucket.parameters) {
      for (const model::HuggingFaceTensor& tensor : names_.tensors(bucket, parameter)) {
        const Source& source = sources_[tensor.name] = find(tensor);
        elements[widened(*source.tensor)] += source.tensor->elements();
      }
    }
  }
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  type_ = std::ranges::max_element(elements, less)->first;
}

std::map<std::string, TensorType> TensorFolder::other_types() const {
  std::map<std::string, TensorType> types;
  for (const auto& [name, source] : sources_) {
    if (widened(*source.tensor) != type_) types[name] = widened(*source.tensor);
  }
  return types;
}

bool TensorFolder::quantised() const {
  return std::ranges::any_of(
      sources_, [](const auto& each) { return each.second.scales != nullptr || each.second.nf4 != nullptr; });
}

namespace {

// Constants of xIELU that transformers' files have beside its trained numbers (ops/xielu.h).
std::optional<float> constant_of(const std::string& name) {
  if (name.ends_with(".act_fn.beta")) return 0.5F;
  if (name.ends_with(".act_fn.eps")) return -1e-6F;
  return std::nullopt;
}

void require_constant(const SafetensorsFile& file, const TensorInfo& tensor) {
  const std::optional<float> expected = constant_of(tensor.name);
  if (!expected || size_of(tensor.type) == 0 || tensor.elements() != 1) return;
  float value = 0;
  to_floats(file.data(tensor), tensor.type, 1, &value);
  if (std::abs(value - *expected) <= 0.01F * std::abs(*expected)) return;
  throw InputError(
      text(where(file, tensor.name), " is ", value, ", but Sluice computes xIELU with ", *expected));
}

}  // namespace

// The number of the layer that a tensor of the trunk belongs to.
std::optional<int64_t> TensorFolder::layer_of(const std::string& name) const {
  const std::string layers = names_.trunk + "layers.";
  if (!name.starts_with(layers)) return std::nullopt;
  return std::atoll(name.substr(layers.size(), 9).c_str());
}

bool TensorFolder::is_carried(const std::string& name) const {
  constexpr std::string_view kFurther = "mtp.";
  if (name.ends_with("rotary_emb.inv_freq") || name.starts_with(kFurther)) return true;
  if (table_.model.has_activation(model::Activation::kXielu) && constant_of(name)) return true;
  const bool in_trunk = name.starts_with(names_.trunk);
  if (!in_trunk) return names_.inside() && !name.starts_with(names_.head);
  const std::optional<int64_t> numbered = layer_of(name);
  if (!numbered) return false;
  const int64_t layer = *numbered;
  // Published files have keys of layers that attend to another layer's.
  constexpr std::string_view kUnused[] = {".self_attn.k_", ".self_attn.v_"};
  const bool of_keys =
      std::ranges::any_of(kUnused, [&](std::string_view part) { return name.find(part) != name.npos; });
  if (of_keys && layer < table_.model.layers())
    return model::borrows_keys(table_.program, table_.program.blocks().begin + layer);
  return layer >= table_.model.layers() && layer < table_.model.layers() + hints_.further_layers;
}

// An encoder's files often end in a head for masked tokens, or in a pooler that its embeddings don't use.
bool TensorFolder::is_of_another_head(const std::string& name) const {
  if (table_.model.causal()) return false;
  constexpr std::string_view kHeads[] = {"cls.", "head.", "decoder.", "pooler.", "bert.pooler."};
  return name.ends_with("embeddings.position_ids") ||
         std::ranges::any_of(kHeads, [&](std::string_view head) { return name.starts_with(head); });
}

// InputError for a tensor of layers behind the model's that config.json does not name.
void TensorFolder::refuse_further_layer(const SafetensorsFile& file, const std::string& name) const {
  const std::optional<int64_t> layer = layer_of(name);
  const int64_t layers = table_.model.layers();
  if (!layer || *layer < layers) return;
  throw InputError(text(where(file, name), " is not part of this model: it is of layer ", *layer,
                        ", but config.json names ", layers, " layers and ", hints_.further_layers,
                        " behind them that predict further tokens ",
                        "(MTP): set num_nextn_predict_layers to ", *layer + 1 - layers,
                        " if it is one of these, or num_hidden_layers to ", *layer + 1, " if not"));
}

// Sorts the other tensors of the files: tied heads, other heads, carried tensors; InputError for the rest.
void TensorFolder::sort_others() {
  std::set<std::string_view> known;
  for (const auto& [name, source] : sources_) {
    known.insert(source.tensor->name);
    if (source.scales != nullptr) known.insert(source.scales->name);
    if (is_int8(*source.tensor)) {
      const auto layout = all_.find(beside(source.tensor->name, kLayout));
      if (layout != all_.end()) known.insert(layout->first);
    }
    if (source.nf4 == nullptr) continue;
    for (const char* part : Nf4Matrix::kParts) {
      const auto found = all_.find(source.tensor->name + part);
      if (found != all_.end()) known.insert(found->first);
    }
  }
  for (const auto& file : files_) {
    for (const TensorInfo& tensor : file->tensors()) {
      if (known.contains(tensor.name)) continue;
      if (table_.model.ties_head() && tensor.name == names_.head + "weight") {
        require_tied(look_for(tensor.name));
        tied_head_ = true;
      } else if (is_of_another_head(tensor.name)) {
        continue;
      } else if (is_carried(tensor.name)) {
        if (table_.model.has_activation(model::Activation::kXielu)) require_constant(*file, tensor);
        carried_.push_back({file.get(), &tensor});
      } else {
        refuse_further_layer(*file, tensor.name);
        throw InputError(
            text(where(*file, tensor.name),
                 " is not part of this model: Sluice reads the weights of its families alone (no "
                 "further biases, adapters or unknown quantisation)"));
      }
    }
  }
}

// InputError unless the head equals the embedding: otherwise its values would be lost.
void TensorFolder::require_tied(const Source& head) const {
  const model::Bucket& embedding = table_.embedding();
  require_equal(head, names_.tensors(embedding, embedding.parameters.front()).front().name,
                "but the model's head is tied to its embedding: set tie_word_embeddings to false in "
                "config.json to use this head, or remove the tensor");
}

void TensorFolder::require_mtp(const model::ParameterTable& table) const {
  for (const model::Bucket& bucket : table.buckets) {
    for (const model::Parameter& parameter : bucket.parameters) {
      if (!parameter.of_mtp) continue;
      for (const model::HuggingFaceTensor& tensor : names_.tensors(bucket, parameter)) find_mtp(tensor);
    }
  }
  for (const Carried& carried : carried_) {
    const std::optional<std::string> original = original_of_mtp(carried.tensor->name, table, names_);
    if (!original) continue;
    require_equal(
        look_for(carried.tensor->name), *original,
        "which the MTP layer shares in training: remove the tensor, or leave train.mtp at \"keep\"");
  }
}

TensorFolder::Source TensorFolder::find_mtp(const model::HuggingFaceTensor& tensor) const {
  if (look_for(tensor.name).tensor != nullptr || find_mxfp4(tensor)) return find(tensor);
  throw InputError(text(folder_.string(), ": tensor '", tensor.name,
                        "' of the MTP layer is missing: fetch all ",
                        "of the model, or leave train.mtp at \"keep\""));
}

void TensorFolder::require_equal(const Source& head, const std::string& name,
                                 const std::string& meaning) const {
  const Source& table = sources_.at(name);
  const bool comparable = size_of(head.tensor->type) > 0 && head.tensor->type != TensorType::kFloat64;
  bool equal = comparable && head.tensor->shape == table.tensor->shape;
  constexpr int64_t kChunk = int64_t{1} << 20;
  std::vector<float> ours(kChunk), theirs(kChunk);
  for (int64_t begin = 0; equal && begin < head.tensor->elements(); begin += kChunk) {
    const int64_t count = std::min(kChunk, head.tensor->elements() - begin);
    const auto load = [&](const Source& from, std::vector<float>& to) {
      const std::byte* const bytes = from.file->data(*from.tensor) + begin * size_of(from.tensor->type);
      to_floats(bytes, from.tensor->type, count, to.data());
    };
    load(table, ours);
    load(head, theirs);
    equal = std::equal(ours.begin(), ours.begin() + count, theirs.begin());
  }
  if (equal) return;
  throw InputError(text(where(*head.file, head.tensor->name), " differs from '", name, "', ", meaning));
}

void TensorFolder::read(const Source& source, const model::HuggingFaceTensor& tensor, Interval inside,
                        float* to) const {
  const std::byte* data = source.file->data(*source.tensor);
  const TensorType type = source.tensor->type;
  const auto read_by = [&](const auto& load) {
    if (!tensor.straight()) return read_reordered(tensor, inside, to, load);
    load(inside.begin, inside.size(), to);
  };
  if (source.nf4 != nullptr) {
    return read_by(
        [&](int64_t first, int64_t count, float* values) { source.nf4->read(first, count, values); });
  }
  if (source.blocks) {
    return read_by(
        [&](int64_t first, int64_t count, float* values) { source.blocks->read(first, count, values); });
  }
  if (is_int8(*source.tensor)) {
    const std::byte* const bytes = source.scales_file->data(*source.scales);
    std::vector<float> maxima(static_cast<size_t>(tensor.shape.front()));
    std::memcpy(maxima.data(), bytes, maxima.size() * sizeof(float));
    return read_by([&](int64_t first, int64_t count, float* values) {
      read_int8(data, maxima.data(), tensor.shape[1], first, count, values);
    });
  }
  if (source.scales != nullptr) {
    // Elements are numbered as in the tensor that the matrix replaces, [experts, in, out].
    const int64_t in = tensor.shape[1], out = tensor.shape[2];
    const Mxfp4Matrix matrix{data, source.scales_file->data(*source.scales), in, out};
    return read_by([&](int64_t first, int64_t count, float* values) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t element = first + i;
        values[i] = matrix.value(element / (in * out), element / out % in, element % out);
      }
    });
  }
  read_by([&](int64_t first, int64_t count, float* values) {
    to_floats(data + first * size_of(type), type, count, values);
  });
}

// A head that a run gives the model has no values in files unless its name and shape are there.
std::optional<TensorFolder::Source> TensorFolder::source_of(const model::Parameter& parameter,
                                                            const model::HuggingFaceTensor& tensor) const {
  if (parameter.of_mtp) return find_mtp(tensor);
  if (!model::is_of_numbers(parameter)) return sources_.at(tensor.name);
  const Source other = look_for(tensor.name);
  const bool fits = other.tensor != nullptr && other.tensor->shape == tensor.shape &&
                    size_of(other.tensor->type) > 0 && other.tensor->type != TensorType::kFloat64;
  return fits ? std::optional(other) : std::nullopt;
}

void TensorFolder::read(const model::Bucket& bucket, Interval interval, float* values) const {
  for (const model::Parameter& parameter : bucket.parameters) {
    const Interval all{parameter.offset, parameter.offset + parameter.size()};
    if (!parameter.is_published() || base::intersect(all, interval).empty()) continue;
    for (const model::HuggingFaceTensor& tensor : names_.tensors(bucket, parameter)) {
      const int64_t begin = parameter.offset + tensor.row_begin * parameter.columns;
      const Interval whole{begin, begin + tensor.rows * parameter.columns};
      const Interval common = base::intersect(whole, interval);
      if (common.empty()) continue;
      const std::optional<Source> found = source_of(parameter, tensor);
      if (!found) continue;
      const Source& source = *found;
      const Interval inside{common.begin - begin, common.end - begin};
      float* to = values + (common.begin - interval.begin);
      read(source, tensor, inside, to);
      require_finite({to, static_cast<size_t>(inside.size())}, source.file->location().path(), tensor.name);
    }
  }
}

}  // namespace sluice::checkpoint
