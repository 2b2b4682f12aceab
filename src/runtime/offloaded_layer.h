// One layer's saved activations, of which a share of the rows waits in host memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "layers/operation.h"
#include "ops/memory_account.h"

namespace sluice::runtime {

// Accounts of the bytes held on device and host. Both outlive every offloaded layer.
struct Memories {
  ops::MemoryAccount& device;
  ops::MemoryAccount& host;
};

// The first rows of every tensor are moved; the others stay on the device in new tensors. For a GPU the
// host's copies are pinned and moves are issued on the current stream. Neither function is thread-safe, but
// different layers may move concurrently.
class OffloadedLayer {
 public:
  // Moves rows of the tensors of `saved` to the host. REQUIRES: none is offloaded; 0 < permille <= 1000.
  void offload(layers::State& saved, int permille, Memories memories);
  // Brings them back, to the bit. REQUIRES: offload() came before.
  void fetch(layers::State& saved, Memories memories);

 private:
  struct MovedRows {
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
    at::Tensor host;  // undefined where the tensor was missing
    at::Tensor kept;
  };
  std::vector<MovedRows> parts_;  // as State::rows has them
};

}  // namespace sluice::runtime
