// Number formats of a run. Masters and optimiser state are FP32, or FP64 when everything is.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "comm/transport.h"

namespace sluice::runtime {

struct Precision {
  comm::DType compute = comm::DType::kFloat32;  // parameters and activations while computing
  comm::DType master() const {
    return compute == comm::DType::kFloat64 ? comm::DType::kFloat64 : comm::DType::kFloat32;
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
// REQUIRES: the type of one.
inline comm::DType dtype_of(c10::ScalarType type) {
  return type == c10::ScalarType::Double     ? comm::DType::kFloat64
         : type == c10::ScalarType::BFloat16 ? comm::DType::kBFloat16
                                             : comm::DType::kFloat32;
}

}  // namespace sluice::runtime
