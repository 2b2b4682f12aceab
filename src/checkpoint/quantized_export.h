// Matrices of an export in 4 or 8 bits, as bitsandbytes saves them (Linear4bit, Linear8bitLt) and
// transformers loads them. TensorFolder reads them, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "checkpoint/safetensors_header.h"
#include "model/hugging_face.h"

namespace sluice::checkpoint {

// `kNf4Double`: NF4 whose absolute maxima are quantised, too ("double quantisation": Dettmers et al., QLoRA,
// 2023, section 3).
enum class Quantization : uint8_t { kNone, kNf4, kNf4Double, kInt8 };
// "none", "nf4", "nf4-double", "int8". InputError for another name.
Quantization quantization_of(const std::string& name);

// Whether transformers has the tensor as a torch.nn.Linear of a block, which bitsandbytes replaces.
bool is_linear(const model::Bucket& bucket, const model::Parameter& parameter);

// One matrix of a file. `info` has its name, shape [out, in] and the type to which bitsandbytes expands it.
class QuantizedMatrix {
 public:
  QuantizedMatrix(Quantization quantization, TensorInfo info);

  // The tensors in place of the matrix.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }

  // Sets the maxima that the other functions need. `values`: the whole matrix in the file's order.
  void measure(const std::vector<float>& values);
  bool measured() const { return !maxima_.empty(); }
  // Whether the bytes of a tensor need the matrix's values.
  bool needs_values(size_t tensor) const { return tensor == 0; }
  // REQUIRES: measured(), of these values.
  std::vector<std::byte> bytes(size_t tensor, const std::vector<float>& values) const;
  // Replaces the values by those that a reader gets.
  void expand(std::vector<float>& values) const;

 private:
  int64_t per_maximum() const;
  std::vector<float> maxima_as_read() const;
  std::vector<std::byte> codes(const std::vector<float>& values) const;
  std::string state() const;

  Quantization quantization_;
  TensorInfo info_;
  std::vector<TensorInfo> tensors_;  // the codes first
  std::vector<float> maxima_;        // by block of NF4, by row of int8
};

// quantization_config of config.json. `kept`: modules with matrices that are not quantised.
base::Json quantization_config(Quantization quantization, const std::string& dtype,
                               const std::vector<std::string>& kept);

}  // namespace sluice::checkpoint
