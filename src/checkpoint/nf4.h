// Matrices in 4 bits as bitsandbytes saves them (Linear4bit). A byte holds two codes, the first in its upper
// half. Each block of numbers is scaled by its absolute maximum; the maxima may be quantised themselves
// ("double quantisation": Dettmers et al., QLoRA, 2023, section 3).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"

namespace sluice::checkpoint {

class Nf4Matrix {
 public:
  // Suffixes to the name of a matrix's codes that name the tensors belonging to them.
  static constexpr const char* kState = ".quant_state.bitsandbytes__nf4";
  static constexpr const char* kParts[] = {".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map",
                                           kState};

  struct Tensor {
    const SafetensorsFile* file = nullptr;
    const TensorInfo* info = nullptr;  // null: no such tensor
  };
  // `part` returns the tensor of a name. InputError naming a tensor that is missing, or whose type or shape
  // does not belong to a matrix of this shape.
  Nf4Matrix(const Tensor& codes, const std::vector<int64_t>& shape,
            const std::function<Tensor(const std::string& name)>& part);

  // Numbers [first, first + count) in row-major order.
  void read(int64_t first, int64_t count, float* values) const;

 private:
  const std::byte* codes_;
  int64_t block_ = 64;
  std::array<float, 16> map_{};
  std::vector<float> maxima_;  // absolute maxima by block
};

}  // namespace sluice::checkpoint
