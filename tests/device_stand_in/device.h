// A device in host memory, in place of a GPU: libtorch's PrivateUse1. Operators run at once, as the host's;
// the checker proves their order. It exists as soon as this is linked.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "checker.h"

namespace sluice::stand_in {

inline c10::Device device(int index) { return {c10::kPrivateUse1, static_cast<c10::DeviceIndex>(index)}; }
int current_stream(const c10::Device& device);

// An access of the current stream to what the tensor covers.
void access(const at::Tensor& tensor, Mode mode, const std::string& by);

}  // namespace sluice::stand_in
