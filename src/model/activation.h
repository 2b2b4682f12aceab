// Activations of MLPs.
#pragma once

#include <cstdint>

namespace sluice::model {

// The activation of an MLP, applied to its gate, or to up if there is no gate. SiLU; GELU, exact or with
// tanh's approximation; SiLU with the outline's slope and limits, and up + 1 (ops/gated_activation.h);
// squared ReLU, max(x, 0)² (So et al., Primer, 2021); tanh; xIELU with two trained numbers, only without a
// gate (ops/xielu.h).
enum class Activation : uint8_t { kSilu, kGeluTanh, kClampedSilu, kSquaredRelu, kGelu, kTanh, kXielu };

}  // namespace sluice::model
