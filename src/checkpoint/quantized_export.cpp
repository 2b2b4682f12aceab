#include "checkpoint/quantized_export.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/nf4.h"
#include "model/weight_blocks.h"

namespace sluice::checkpoint {
namespace {

using base::text;
using base::WeightFormat;

constexpr int64_t kNestedBlock = 256;
constexpr size_t kOffsetWidth = 32;  // the state is padded, as its length stands in the file's header

int64_t in_blocks(int64_t elements, int64_t block) { return (elements + block - 1) / block; }

TensorInfo raw(std::string name, const char* type, std::vector<int64_t> shape) {
  return {
      .name = std::move(name), .type = TensorType::kOther, .shape = std::move(shape), .format_type = type};
}
TensorInfo floats(std::string name, int64_t elements) {
  return {.name = std::move(name), .type = TensorType::kFloat32, .shape = {elements}};
}

template <typename T>
std::vector<std::byte> as_bytes(const T& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// The values of bitsandbytes' create_dynamic_map(), rounded once: 8-bit floats whose exponent takes 1 to 7
// bits, with linear fractions. Readers take them from the file.
const std::array<float, 256>& dynamic_map() {
  static const std::array<float, 256> map = [] {
    constexpr double kScales[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0};
    std::vector<float> all{0.0F, 1.0F};
    for (int exponent = 0; exponent < 7; ++exponent) {
      const int fractions = 1 << exponent;
      for (int i = 0; i < fractions; ++i) {
        const double mean = 0.1 + 0.9 * (i + 0.5) / fractions;
        all.push_back(static_cast<float>(kScales[exponent] * mean));
        all.push_back(-all.back());
      }
    }
    std::ranges::sort(all);
    std::array<float, 256> sorted{};
    SLUICE_ASSERT(all.size() == sorted.size(), text(all.size(), " values of a map"));
    std::ranges::copy(all, sorted.begin());
    return sorted;
  }();
  return map;
}

uint8_t nearest_code(float value) {
  const std::array<float, 256>& map = dynamic_map();
  const auto above = std::ranges::lower_bound(map, value);
  if (above == map.begin()) return 0;
  if (above == map.end()) return 255;
  const auto below = std::prev(above);
  return static_cast<uint8_t>((value - *below <= *above - value ? below : above) - map.begin());
}

// Maxima of NF4 blocks, quantised as well.
struct NestedMaxima {
  std::vector<uint8_t> codes;
  std::vector<float> maxima;  // by kNestedBlock blocks
  float offset = 0;
};

NestedMaxima nested(const std::vector<float>& maxima) {
  NestedMaxima result;
  double sum = 0;
  for (const float maximum : maxima) sum += maximum;
  result.offset = static_cast<float>(sum / static_cast<double>(maxima.size()));
  for (size_t begin = 0; begin < maxima.size(); begin += kNestedBlock) {
    const size_t end = std::min(begin + kNestedBlock, maxima.size());
    float most = 0;
    for (size_t i = begin; i < end; ++i) most = std::max(most, std::fabs(maxima[i] - result.offset));
    result.maxima.push_back(most);
    for (size_t i = begin; i < end; ++i)
      result.codes.push_back(nearest_code(most > 0 ? (maxima[i] - result.offset) / most : 0.0F));
  }
  return result;
}

WeightFormat format_of(Quantization quantization) {
  return quantization == Quantization::kInt8 ? WeightFormat::kInt8 : WeightFormat::kNf4;
}

// "self_attn.q_proj.SCB" for "self_attn.q_proj.weight".
std::string beside_matrix(const std::string& tensor, const char* end) {
  return tensor.substr(0, tensor.rfind('.') + 1) + end;
}

std::vector<TensorInfo> tensors_of(Quantization quantization, const TensorInfo& matrix, size_t state_bytes) {
  const int64_t elements = matrix.elements(), blocks = in_blocks(elements, base::kWeightBlock);
  const std::string& name = matrix.name;
  if (quantization == Quantization::kInt8) {
    return {raw(name, "I8", matrix.shape), floats(beside_matrix(name, "SCB"), matrix.shape.front()),
            raw(beside_matrix(name, "weight_format"), "U8", {})};
  }
  std::vector<TensorInfo> all{raw(name, "U8", {in_blocks(elements, 2), 1})};
  const bool is_double = quantization == Quantization::kNf4Double;
  all.push_back(is_double ? raw(name + ".absmax", "U8", {blocks}) : floats(name + ".absmax", blocks));
  all.push_back(floats(name + ".quant_map", std::ssize(model::kNf4Values)));
  all.push_back(raw(name + Nf4Matrix::kState, "U8", {static_cast<int64_t>(state_bytes)}));
  if (!is_double) return all;
  all.push_back(floats(name + ".nested_absmax", in_blocks(blocks, kNestedBlock)));
  all.push_back(floats(name + ".nested_quant_map", std::ssize(dynamic_map())));
  return all;
}

base::Json state_json(Quantization quantization, const TensorInfo& matrix, float offset) {
  base::Json state = {{"quant_type", "nf4"},
                      {"blocksize", base::kWeightBlock},
                      {"dtype", config_name(matrix.type)},
                      {"shape", matrix.shape}};
  if (quantization != Quantization::kNf4Double) return state;
  state["nested_blocksize"] = kNestedBlock;
  state["nested_dtype"] = "float32";
  state["nested_offset"] = offset;
  return state;
}

}  // namespace

Quantization quantization_of(const std::string& name) {
  constexpr std::pair<const char*, Quantization> kNames[] = {{"none", Quantization::kNone},
                                                             {"nf4", Quantization::kNf4},
                                                             {"nf4-double", Quantization::kNf4Double},
                                                             {"int8", Quantization::kInt8}};
  for (const auto& [known, quantization] : kNames) {
    if (name == known) return quantization;
  }
  throw base::InputError(text("there is no quantization '", name, "': give nf4, nf4-double or int8"));
}

bool is_linear(const model::Bucket& bucket, const model::Parameter& parameter) {
  const bool is_rows_of_outputs = parameter.transposed == parameter.outputs_last;
  return bucket.layer >= 0 && parameter.takes_low_precision() && parameter.is_published() &&
         parameter.experts == 0 && !parameter.depthwise && is_rows_of_outputs;
}

QuantizedMatrix::QuantizedMatrix(Quantization quantization, TensorInfo info)
    : quantization_(quantization),
      info_(std::move(info)),
      tensors_(tensors_of(quantization, info_,
                          base::json_text(state_json(quantization, info_, 0)).size() + kOffsetWidth)) {}

int64_t QuantizedMatrix::per_maximum() const {
  return quantization_ == Quantization::kInt8 ? info_.shape.back() : base::kWeightBlock;
}

void QuantizedMatrix::measure(const std::vector<float>& values) {
  const auto of_one = static_cast<size_t>(per_maximum());
  maxima_.assign((values.size() + of_one - 1) / of_one, 0.0F);
  for (size_t i = 0; i < values.size(); ++i) {
    float& most = maxima_[i / of_one];
    most = std::max(most, std::fabs(values[i]));
  }
}

std::vector<float> QuantizedMatrix::maxima_as_read() const {
  if (quantization_ != Quantization::kNf4Double) return maxima_;
  const NestedMaxima all = nested(maxima_);
  std::vector<float> read;
  for (size_t i = 0; i < all.codes.size(); ++i) {
    const float of_block = dynamic_map()[all.codes[i]] * all.maxima[i / kNestedBlock];
    read.push_back(of_block + all.offset);
  }
  return read;
}

std::string QuantizedMatrix::state() const {
  const float offset = quantization_ == Quantization::kNf4Double ? nested(maxima_).offset : 0;
  std::string json = base::json_text(state_json(quantization_, info_, offset));
  json.resize(static_cast<size_t>(tensors_[3].shape.front()), ' ');
  return json;
}

std::vector<std::byte> QuantizedMatrix::codes(const std::vector<float>& values) const {
  const WeightFormat format = format_of(quantization_);
  const int64_t row = per_maximum();
  std::vector<std::byte> all;
  std::array<std::byte, base::block_bytes(WeightFormat::kInt8)> block{};
  const auto count = std::ssize(values);
  for (int64_t row_begin = 0; row_begin < count; row_begin += row) {
    const int64_t row_end = std::min(row_begin + row, count);
    for (int64_t begin = row_begin; begin < row_end; begin += base::kWeightBlock) {
      const int64_t numbers = std::min(base::kWeightBlock, row_end - begin);
      model::encode_block(format, values.data() + begin, numbers, maxima_[static_cast<size_t>(begin / row)],
                          block.data());
      all.insert(all.end(), block.begin(),
                 block.begin() + (format == WeightFormat::kInt8 ? numbers : (numbers + 1) / 2));
    }
  }
  return all;
}

std::vector<std::byte> QuantizedMatrix::bytes(size_t tensor, const std::vector<float>& values) const {
  if (tensor == 0) return codes(values);
  if (quantization_ == Quantization::kInt8)
    return tensor == 1 ? as_bytes(maxima_) : std::vector<std::byte>(1);  // codes lie by rows
  switch (tensor) {
    case 1:
      return quantization_ == Quantization::kNf4Double ? as_bytes(nested(maxima_).codes) : as_bytes(maxima_);
    case 2: return as_bytes(model::kNf4Values);
    case 3: return as_bytes(state());
    case 4: return as_bytes(nested(maxima_).maxima);
    default: return as_bytes(dynamic_map());
  }
}

void QuantizedMatrix::expand(std::vector<float>& values) const {
  const WeightFormat format = format_of(quantization_);
  const int64_t row = per_maximum();
  const std::vector<float> read = maxima_as_read();
  std::array<std::byte, base::block_bytes(WeightFormat::kInt8)> block{};
  std::array<float, base::kWeightBlock> numbers{};
  const auto count = std::ssize(values);
  for (int64_t row_begin = 0; row_begin < count; row_begin += row) {
    const int64_t row_end = std::min(row_begin + row, count);
    const auto at = static_cast<size_t>(row_begin / row);
    for (int64_t begin = row_begin; begin < row_end; begin += base::kWeightBlock) {
      const int64_t some = std::min(base::kWeightBlock, row_end - begin);
      model::encode_block(format, values.data() + begin, some, maxima_[at], block.data());
      model::set_block_maximum(format, read[at], block.data());
      model::decode_block(format, block.data(), numbers.data());
      std::copy_n(numbers.begin(), some, values.begin() + begin);
    }
  }
}

base::Json quantization_config(Quantization quantization, const std::string& dtype,
                               const std::vector<std::string>& kept) {
  const bool is_int8 = quantization == Quantization::kInt8;
  return {{"quant_method", "bitsandbytes"},
          {"_load_in_4bit", !is_int8},
          {"_load_in_8bit", is_int8},
          {"load_in_4bit", !is_int8},
          {"load_in_8bit", is_int8},
          {"bnb_4bit_compute_dtype", dtype},
          {"bnb_4bit_quant_storage", "uint8"},
          {"bnb_4bit_quant_type", is_int8 ? "fp4" : "nf4"},
          {"bnb_4bit_use_double_quant", quantization == Quantization::kNf4Double},
          {"llm_int8_enable_fp32_cpu_offload", false},
          {"llm_int8_has_fp16_weight", false},
          {"llm_int8_skip_modules", kept},
          {"llm_int8_threshold", 6.0}};
}

}  // namespace sluice::checkpoint
