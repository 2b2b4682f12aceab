// Matrices in 4 bits as bitsandbytes saves them (Linear4bit): codes two a byte, the first in the upper half,
// of numbers that blocks scale by their absolute maxima, which may be quantised themselves ("double
// quantisation": Dettmers et al., QLoRA, 2023, section 3).
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
  // Behind the name of a matrix's codes, the names of what belongs to them.
  static constexpr const char* kState = ".quant_state.bitsandbytes__nf4";
  static constexpr const char* kParts[] = {".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map",
                                           kState};

  struct Tensor {
    const SafetensorsFile* file = nullptr;
    const TensorInfo* info = nullptr;  // null: there is none
  };
  // `part`: the tensor of that name. InputError naming the tensor that is missing, or has not the type or the
  // shape that a matrix of this shape has.
  Nf4Matrix(const Tensor& codes, const std::vector<int64_t>& shape,
            const std::function<Tensor(const std::string& name)>& part);

  // Numbers [first, first + count), in the order of rows.
  void read(int64_t first, int64_t count, float* values) const;

 private:
  const std::byte* codes_;
  int64_t block_ = 64;
  std::array<float, 16> map_{};
  std::vector<float> maxima_;  // by block
};

}  // namespace sluice::checkpoint
