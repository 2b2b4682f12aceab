// Number formats of a layer's matrix products, where they differ from the run's own format.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::base {

// Operands: in the run's own format; bfloat16; 8-bit integers (INT8) or 8-bit floats (E4M3) with one factor
// for each row that is summed over. All of them sum in a wider format (ops/low_precision_gemm.h).
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
