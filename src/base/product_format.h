// In what a layer's matrix products are computed, where that is not as the run computes.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::base {

// As the run computes; numbers of bfloat16; whole numbers of 8 bits, or floats of 8 (E4M3), times a factor of
// each row that is summed over. Sums are wider in all of them (ops/narrow_product.h computes them).
enum class ProductFormat : uint8_t { kAsComputed, kBFloat16, kInt8, kFloat8 };

inline constexpr ProductFormat kNarrowFormats[] = {ProductFormat::kBFloat16, ProductFormat::kInt8,
                                                   ProductFormat::kFloat8};

constexpr std::string_view name_of(ProductFormat format) {
  switch (format) {
    case ProductFormat::kAsComputed: return "none";
    case ProductFormat::kBFloat16: return "bfloat16";
    case ProductFormat::kInt8: return "int8";
    case ProductFormat::kFloat8: return "float8";
  }
  return "";
}

}  // namespace sluice::base
