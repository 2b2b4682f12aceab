// Counts attention calls that no fused kernel computed.
#pragma once

#include <cstdint>

namespace sluice::ops {

// The number of calls for attention, or a part of it, that this process has left to ATen's operators, which
// hold scores in memory. On GPUs these are scores with a cap, windows between lanes, and types that fused
// kernels do not take. Thread-safe.
int64_t unfused_attention_calls();

}  // namespace sluice::ops
