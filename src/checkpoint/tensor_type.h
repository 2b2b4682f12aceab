// Element types of tensors in files, and their conversion to and from floats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::checkpoint {

// kOther stands for the format's types that Sluice does not compute with (integers, floats below 16 bits).
enum class TensorType : uint8_t { kFloat32, kFloat64, kBFloat16, kFloat16, kOther };

// 0 for kOther.
int64_t size_of(TensorType type);

// safetensors' names: "F32", "F64", "BF16", "F16".
const char* format_name(TensorType type);
TensorType type_from_format_name(std::string_view name);
// Bits of an element of any type that the format defines; 0 for an unknown name. Elements smaller than a byte
// are packed.
int64_t element_bits(std::string_view format_name);

// The configuration's and Hugging Face's names: "float32", "float64", "bfloat16", "float16".
const char* config_name(TensorType type);
// InputError naming `name` for any other.
TensorType type_from_config_name(std::string_view config_name, const std::string& name);

// `elements` values of `type` at `bytes` (any alignment) as floats. Exact for the 16-bit types.
// REQUIRES: type is kFloat32, kBFloat16 or kFloat16.
void to_floats(const std::byte* bytes, TensorType type, int64_t elements, float* values);

// Floats as BF16 or F16, rounded to nearest even; NaN stays NaN. Numbers too large for F16 become infinite.
uint16_t to_bfloat16(float value);
uint16_t to_float16(float value);

}  // namespace sluice::checkpoint
