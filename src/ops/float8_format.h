// Constants of 8-bit floats (E4M3) as operands of products. No libtorch: kernels share them.
#pragma once

#include <cstdint>

namespace sluice::ops {

inline constexpr float kMostFloat8 = 448;  // largest number that E4M3 holds
// Rows whose largest magnitude is less are coded as if it were this, so that factor and inverse stay normal
// floats.
inline constexpr float kLeastRowMost = 0x1p-110F;
// Codes of a row take a multiple of so many bytes, as GPUs' products need. Zeros fill it up.
inline constexpr int64_t kFloat8Multiple = 16;

}  // namespace sluice::ops
