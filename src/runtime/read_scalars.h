// Scalars that a device has computed, for the host.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>

#include <vector>

namespace sluice::runtime {

// The values of zero-dimensional tensors in double, in their order. A device is waited for once, not per
// tensor.
inline std::vector<double> read_scalars(const std::vector<at::Tensor>& scalars) {
  if (scalars.empty()) return {};
  const at::Tensor on_host = at::stack(scalars).to(c10::kCPU, c10::ScalarType::Double);
  const double* first = on_host.const_data_ptr<double>();
  return {first, first + on_host.numel()};
}

}  // namespace sluice::runtime
