#include "runtime/offloaded_layer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "runtime/stream_use.h"

namespace sluice::runtime {

namespace {

int64_t bytes_of(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

// Pinned for a device. If the device is the host itself, offloaded rows are not counted among the device's
// tensors.
at::Tensor empty_on_host(const at::Tensor& like) {
  if (!like.is_cpu()) return at::empty(like.sizes(), like.options().device(at::kCPU).pinned_memory(true));
  void* bytes = std::malloc(std::max<size_t>(1, like.nbytes()));
  SLUICE_ASSERT(bytes != nullptr, "no host memory");
  return at::from_blob(bytes, like.sizes(), &std::free, like.options());
}

}  // namespace

void OffloadedLayer::offload(layers::State& saved, int permille, Memories memories) {
  SLUICE_ASSERT(parts_.empty(), "a layer is offloaded twice");
  for (const auto& [tensor, dimension] : saved.rows()) {
    MovedRows& part = parts_.emplace_back();
    if (!tensor.defined()) continue;
    use_on_current_stream(tensor);
    const int64_t rows = tensor.size(dimension);
    const int64_t moved = rows * permille / 1000;
    part.sizes = tensor.sizes().vec();
    part.strides = tensor.strides().vec();
    const at::Tensor leaving = tensor.narrow(dimension, 0, moved);
    part.host = empty_on_host(leaving);
    part.host.copy_(leaving, /*non_blocking=*/!tensor.is_cpu());
    part.kept = tensor.narrow(dimension, moved, rows - moved).clone();
    memories.host.take(bytes_of(part.host));
    memories.device.take(bytes_of(part.kept));
    memories.device.give_back(bytes_of(tensor));
    tensor.reset();
  }
}

void OffloadedLayer::fetch(layers::State& saved, Memories memories) {
  SLUICE_ASSERT(!parts_.empty(), "a layer is fetched that was not offloaded");
  auto part = parts_.begin();
  for (const auto& [tensor, dimension] : saved.rows()) {
    const MovedRows& from = *part++;
    if (!from.host.defined()) continue;
    use_on_current_stream(from.kept);
    tensor = at::empty_strided(from.sizes, from.strides, from.kept.options());
    memories.device.take(bytes_of(tensor));
    const int64_t moved = from.host.size(dimension), kept = tensor.size(dimension) - moved;
    tensor.narrow(dimension, 0, moved).copy_(from.host, /*non_blocking=*/!tensor.is_cpu());
    tensor.narrow(dimension, moved, kept).copy_(from.kept, /*non_blocking=*/!tensor.is_cpu());
    memories.device.give_back(bytes_of(from.kept));
    memories.host.give_back(bytes_of(from.host));
  }
  parts_.clear();
}

}  // namespace sluice::runtime
