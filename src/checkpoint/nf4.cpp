#include "checkpoint/nf4.h"

#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "base/json_fields.h"
#include "base/json_reader.h"
#include "base/text.h"

namespace sluice::checkpoint {
namespace {

using base::InputError;
using base::text;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

std::string where(const Nf4Matrix::Tensor& tensor) {
  return text(tensor.file->location().string(), ": tensor '", tensor.info->name, "'");
}

void require_tensor(const Nf4Matrix::Tensor& tensor, const char* type, int64_t elements) {
  if (tensor.info->format_type == type && tensor.info->elements() == elements) return;
  throw InputError(text(where(tensor), " is ", tensor.info->format_type, " ", shape_text(tensor.info->shape),
                        ", expected ", type, " of ", elements,
                        " elements for a matrix in NF4: save the model again with bitsandbytes"));
}

std::vector<float> floats_of(const Nf4Matrix::Tensor& tensor, int64_t elements) {
  require_tensor(tensor, "F32", elements);
  std::vector<float> values(static_cast<size_t>(elements));
  std::memcpy(values.data(), tensor.file->data(*tensor.info), values.size() * sizeof(float));
  return values;
}

// Finds the tensors of one matrix by the suffixes of their names.
class Parts {
 public:
  Parts(std::string stem, const std::function<Nf4Matrix::Tensor(const std::string&)>& part)
      : stem_(std::move(stem)), part_(part) {}

  Nf4Matrix::Tensor require(const std::string& end) const {
    const Nf4Matrix::Tensor found = part_(stem_ + end);
    if (found.info != nullptr) return found;
    throw InputError(text("tensor '", stem_, end, "' is missing beside '", stem_,
                          "', which is in 4 bits: the folder is incomplete, or save the model in BF16"));
  }

 private:
  std::string stem_;
  const std::function<Nf4Matrix::Tensor(const std::string&)>& part_;
};

base::Json state_of(const Nf4Matrix::Tensor& tensor) {
  const std::string_view bytes(reinterpret_cast<const char*>(tensor.file->data(*tensor.info)),
                               static_cast<size_t>(tensor.info->bytes()));
  return base::parse_python_json(bytes, where(tensor));
}

// Absolute maxima from their quantised form: blocks with scales, a map of 256 values, and the mean to add.
std::vector<float> nested_maxima(const Parts& parts, const Nf4Matrix::Tensor& codes, int64_t blocks,
                                 const base::Json& state, const std::string& name) {
  require_tensor(codes, "U8", blocks);
  const int64_t size = base::require_in(state, "nested_blocksize", base::Range<int64_t>{1, 1 << 20}, name);
  const auto offset = base::require<double>(state, "nested_offset", name);
  const std::vector<float> scales = floats_of(parts.require(".nested_absmax"), divide_up(blocks, size));
  const std::vector<float> map = floats_of(parts.require(".nested_quant_map"), 256);
  const std::byte* const bytes = codes.file->data(*codes.info);
  std::vector<float> maxima(static_cast<size_t>(blocks));
  for (int64_t i = 0; i < blocks; ++i) {
    const float of_block = map[std::to_integer<size_t>(bytes[i])] * scales[static_cast<size_t>(i / size)];
    maxima[static_cast<size_t>(i)] = of_block + static_cast<float>(offset);
  }
  return maxima;
}

}  // namespace

Nf4Matrix::Nf4Matrix(const Tensor& codes, const std::vector<int64_t>& shape,
                     const std::function<Tensor(const std::string& name)>& part)
    : codes_(codes.file->data(*codes.info)) {
  const Parts parts(codes.info->name, part);
  const Tensor described = parts.require(kState);
  const base::Json state = state_of(described);
  const std::string name = where(described);
  const auto saved = base::require<std::vector<int64_t>>(state, "shape", name);
  if (saved != shape) {
    throw InputError(text(name, " has shape ", shape_text(saved), ", config.json asks for ",
                          shape_text(shape), ": the two belong to different models"));
  }
  block_ = base::require_in(state, "blocksize", base::Range<int64_t>{2, 1 << 20}, name);
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  require_tensor(codes, "U8", divide_up(elements, 2));
  const std::vector<float> map = floats_of(parts.require(".quant_map"), static_cast<int64_t>(map_.size()));
  std::copy(map.begin(), map.end(), map_.begin());
  const Tensor maxima = parts.require(".absmax");
  const int64_t blocks = divide_up(elements, block_);
  const bool nested = maxima.info->format_type == "U8";
  maxima_ = nested ? nested_maxima(parts, maxima, blocks, state, name) : floats_of(maxima, blocks);
}

void Nf4Matrix::read(int64_t first, int64_t count, float* values) const {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t element = first + i;
    const auto pair = std::to_integer<uint8_t>(codes_[element / 2]);
    const size_t code = element % 2 == 0 ? pair >> 4 : pair & 0xF;
    values[i] = map_[code] * maxima_[static_cast<size_t>(element / block_)];
  }
}

}  // namespace sluice::checkpoint
