// Attention that no fused kernel computed.
#pragma once

#include <cstdint>

namespace sluice::ops {

// How many calls for attention, or a part of it, this process has left to ATen's operators, which hold scores
// in memory: on GPUs scores with a cap, windows between lanes, and types that fused kernels do not take.
// Thread-safe.
int64_t unfused_attention_calls();

}  // namespace sluice::ops
