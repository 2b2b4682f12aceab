// How the optimizer stores its moments between steps.
#pragma once

#include <cstdint>

namespace sluice::base {

// kWide: as wide as masters. k8Bit: 8-bit codes (runtime/moment.h).
enum class MomentFormat : uint8_t { kWide, k8Bit };

// Bytes per trained parameter at its owner: the master, AdamW's two moments and a gradient slice. Each is as
// wide as the run computes (wide_bytes), except for narrower masters and 8-bit moments. The scales of 8-bit
// moments, powers of two for groups of parameters (2 bytes per 128 parameters), are not counted.
constexpr int64_t owner_bytes_per_parameter(MomentFormat moments, int64_t wide_bytes, int64_t master_bytes) {
  return master_bytes + wide_bytes + 2 * (moments == MomentFormat::kWide ? wide_bytes : 1);
}
constexpr int64_t owner_bytes_per_parameter(MomentFormat moments, int64_t wide_bytes) {
  return owner_bytes_per_parameter(moments, wide_bytes, wide_bytes);
}

}  // namespace sluice::base
