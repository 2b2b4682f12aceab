// In what a layer's matrix products are computed, where that is not as the run computes.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::base {

// As the run computes; numbers of bfloat16; whole numbers of 8 bits, or floats of 8 (E4M3), times a factor of
// each row that is summed over. Sums are wider in all of them (ops/low_precision_gemm.h computes them).
enum class GemmFormat : uint8_t { kAsComputed, kBFloat16, kInt8, kFloat8 };

inline constexpr GemmFormat kLowPrecisionFormats[] = {GemmFormat::kBFloat16, GemmFormat::kInt8,
                                                      GemmFormat::kFloat8};

constexpr std::string_view name_of(GemmFormat format) {
  switch (format) {
    case GemmFormat::kAsComputed: return "none";
    case GemmFormat::kBFloat16: return "bfloat16";
    case GemmFormat::kInt8: return "int8";
    case GemmFormat::kFloat8: return "float8";
  }
  return "";
}

}  // namespace sluice::base
