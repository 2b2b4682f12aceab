// How an optimiser keeps what it remembers of each parameter between steps.
#pragma once

#include <cstdint>

namespace sluice::base {

// As wide as masters are, or in 8 bits (runtime/moment.h).
enum class MomentFormat : uint8_t { kWide, k8Bit };

// What a rank keeps of a parameter that it owns and that is trained: master, two moments of AdamW and a slice
// of the gradient, which are as wide as computing leaves them, except for masters that are kept narrower.
// Powers of two that groups of coded moments share (2 bytes for 128 parameters) are not counted.
constexpr int64_t owner_bytes_per_parameter(MomentFormat moments, int64_t wide_bytes, int64_t master_bytes) {
  return master_bytes + wide_bytes + 2 * (moments == MomentFormat::kWide ? wide_bytes : 1);
}
constexpr int64_t owner_bytes_per_parameter(MomentFormat moments, int64_t wide_bytes) {
  return owner_bytes_per_parameter(moments, wide_bytes, wide_bytes);
}

}  // namespace sluice::base
