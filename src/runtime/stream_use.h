// Tensors that several streams of a device use.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace sluice::runtime {

// Activations and gradients are made on one stream and used on another. The allocator must not reuse their
// memory before both are done with it. On the CPU a stream's work is done when its node has run.
inline void use_on_current_stream(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) return;
  const c10::impl::VirtualGuardImpl streams(tensor.device().type());
  tensor.record_stream(streams.getStream(tensor.device()));
}

}  // namespace sluice::runtime
