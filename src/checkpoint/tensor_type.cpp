#include "checkpoint/tensor_type.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/error.h"

namespace sluice::checkpoint {
namespace {

struct FormatType {
  std::string_view name;
  int64_t bytes;
};

// All types of the safetensors format whose elements fill whole bytes.
constexpr std::array<FormatType, 15> kFormatTypes = {{{"BOOL", 1},
                                                      {"U8", 1},
                                                      {"I8", 1},
                                                      {"F8_E5M2", 1},
                                                      {"F8_E4M3", 1},
                                                      {"I16", 2},
                                                      {"U16", 2},
                                                      {"F16", 2},
                                                      {"BF16", 2},
                                                      {"I32", 4},
                                                      {"U32", 4},
                                                      {"F32", 4},
                                                      {"F64", 8},
                                                      {"I64", 8},
                                                      {"U64", 8}}};

uint16_t load_u16(const std::byte* bytes) {
  uint16_t value = 0;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

float from_bfloat16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// IEEE half: 1 sign, 5 exponent (bias 15), 10 fraction bits.
float from_float16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1FU;
  const uint32_t fraction = bits & 0x3FFU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;  // zero and subnormals
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent - 15 + 127;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

}  // namespace

int64_t size_of(TensorType type) { return type == TensorType::kOther ? 0 : element_bytes(format_name(type)); }

const char* format_name(TensorType type) {
  switch (type) {
    case TensorType::kFloat32: return "F32";
    case TensorType::kFloat64: return "F64";
    case TensorType::kBFloat16: return "BF16";
    case TensorType::kFloat16: return "F16";
    case TensorType::kOther: break;
  }
  return "other";
}

TensorType type_from_format_name(std::string_view name) {
  for (const TensorType type :
       {TensorType::kFloat32, TensorType::kFloat64, TensorType::kBFloat16, TensorType::kFloat16}) {
    if (name == format_name(type)) return type;
  }
  return TensorType::kOther;
}

int64_t element_bytes(std::string_view format_name) {
  for (const FormatType& type : kFormatTypes) {
    if (type.name == format_name) return type.bytes;
  }
  return 0;
}

const char* config_name(TensorType type) {
  switch (type) {
    case TensorType::kFloat32: return "float32";
    case TensorType::kFloat64: return "float64";
    case TensorType::kBFloat16: return "bfloat16";
    case TensorType::kFloat16: return "float16";
    case TensorType::kOther: break;
  }
  return "other";
}

void to_floats(const std::byte* bytes, TensorType type, int64_t elements, float* values) {
  if (type == TensorType::kFloat32) {
    std::memcpy(values, bytes, static_cast<size_t>(elements) * sizeof(float));
    return;
  }
  SLUICE_ASSERT(type == TensorType::kBFloat16 || type == TensorType::kFloat16, "not a type that widens");
  for (int64_t i = 0; i < elements; ++i) {
    const uint16_t bits = load_u16(bytes + 2 * i);
    values[i] = type == TensorType::kBFloat16 ? from_bfloat16(bits) : from_float16(bits);
  }
}

uint16_t to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<uint16_t>(bits >> 16 | 0x40U);  // quiet NaN
  return static_cast<uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}

}  // namespace sluice::checkpoint
