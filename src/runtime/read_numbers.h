// Numbers that a device has computed, for the host.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include <vector>

namespace sluice::runtime {

// All values of contiguous tensors in double, in their order. A device is waited for once, not per tensor.
inline std::vector<double> read_numbers(std::vector<at::Tensor> tensors) {
  if (tensors.empty()) return {};
  for (at::Tensor& tensor : tensors) tensor = tensor.view(-1);
  const at::Tensor on_host = at::cat(tensors).to(c10::kCPU, c10::ScalarType::Double);
  const double* first = on_host.const_data_ptr<double>();
  return {first, first + on_host.numel()};
}

}  // namespace sluice::runtime
