// The small model that tests and benchmarks of every module plan and train. Header-only; no part of the
// library.
#pragma once

#include <cstdint>

#include "model/shape.h"

namespace sluice::model {

// The quick start's: 4 query heads on 2 key-value heads, and degrees of tensor parallelism up to 2 cut it (4
// the query heads alone).
inline Shape test_shape(int64_t layers = 4) {
  return {.layers = layers,
          .hidden = 128,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 32,
          .ffn_hidden = 336,
          .vocab = 2048};
}

}  // namespace sluice::model
