#include "checkpoint/tensor_type.h"

#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace sluice::checkpoint {
namespace {

struct FormatType {
  std::string_view name;
  int64_t bits;
};

// All types of the safetensors format.
constexpr FormatType kFormatTypes[] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}};

constexpr TensorType kFloats[] = {TensorType::kFloat32, TensorType::kFloat64, TensorType::kBFloat16,
                                  TensorType::kFloat16};

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

int64_t size_of(TensorType type) {
  return type == TensorType::kOther ? 0 : element_bits(format_name(type)) / 8;
}

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
  for (const TensorType type : kFloats) {
    if (name == format_name(type)) return type;
  }
  return TensorType::kOther;
}

int64_t element_bits(std::string_view format_name) {
  for (const FormatType& type : kFormatTypes) {
    if (type.name == format_name) return type.bits;
  }
  return 0;
}

TensorType type_from_config_name(std::string_view config_name, const std::string& name) {
  for (const TensorType type : kFloats) {
    if (config_name == checkpoint::config_name(type)) return type;
  }
  throw base::InputError(
      base::text(name, " is '", config_name, "', expected float32, float64, bfloat16 or float16"));
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

uint16_t to_float16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000U);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  constexpr uint32_t kInfinity = 0x7F800000U, kTooLarge = 0x477FF000U, kSmallestNormal = 0x38800000U;
  if (magnitude > kInfinity) return sign | 0x7E00U;
  if (magnitude >= kTooLarge) return sign | 0x7C00U;
  if (magnitude < kSmallestNormal) {
    // Count in steps of the smallest subnormal; the addition rounds to nearest even.
    const float steps = std::bit_cast<float>(magnitude) * 0x1p24F + 0x1p23F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(steps) & 0x7FFU));
  }
  const uint32_t rebased = magnitude - ((127U - 15U) << 23);
  return static_cast<uint16_t>(sign | ((rebased + 0xFFFU + (rebased >> 13 & 1U)) >> 13));
}

}  // namespace sluice::checkpoint
