// One layer's saved activations, a share of whose rows waits in host memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "layers/operation.h"
#include "ops/memory_account.h"

namespace sluice::runtime {

// Where bytes are held. Both outlive every layer that is away.
struct Memories {
  ops::MemoryAccount& device;
  ops::MemoryAccount& host;
};

// The first rows of every tensor are moved, the others stay in tensors of their own. From a GPU the host's
// copies are pinned and moves are issued on the current stream. Neither function is thread-safe, but
// different layers may move side by side.
class OffloadedLayer {
 public:
  // Takes the tensors of `saved` away. REQUIRES: nothing is away; 0 < permille <= 1000.
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
