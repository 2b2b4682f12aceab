// Number formats of a run. Masters and optimizer state are FP32, or FP64 if everything is FP64. Masters may
// be kept in bfloat16.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "comm/transport.h"

namespace sluice::runtime {

enum class Masters : uint8_t { kWide, kBFloat16 };

struct Precision {
  comm::DType compute = comm::DType::kFloat32;  // parameters and activations while computing
  Masters masters = Masters::kWide;
  // dtype of gradients, moments and master arithmetic, and of wide masters.
  comm::DType master() const {
    return compute == comm::DType::kFloat64 ? comm::DType::kFloat64 : comm::DType::kFloat32;
  }
  // dtype in which masters are stored (runtime/narrow_masters.h).
  comm::DType kept_master() const {
    return masters == Masters::kBFloat16 ? comm::DType::kBFloat16 : master();
  }
};

inline c10::ScalarType scalar_type(comm::DType dtype) {
  switch (dtype) {
    case comm::DType::kFloat32: return c10::ScalarType::Float;
    case comm::DType::kFloat64: return c10::ScalarType::Double;
    case comm::DType::kBFloat16: return c10::ScalarType::BFloat16;
  }
  return c10::ScalarType::Undefined;
}
// REQUIRES: one of the three types.
inline comm::DType dtype_of(c10::ScalarType type) {
  return type == c10::ScalarType::Double     ? comm::DType::kFloat64
         : type == c10::ScalarType::BFloat16 ? comm::DType::kBFloat16
                                             : comm::DType::kFloat32;
}

}  // namespace sluice::runtime
