// The cosines and sines of rotary embeddings (ops/rotary.h).
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice::ops {

// Cosines and sines of positions 0 … P-1 for D/2 frequencies, times the attention scale; computed in
// double, held in float (double for double).
struct RotaryTable {
  at::Tensor cos_PD;  // [P, D/2]
  at::Tensor sin_PD;  // [P, D/2]
};

enum class Rotation { kForward, kBackward };

}  // namespace sluice::ops
