// Formats of the frozen base's matrices, in blocks of 64 numbers along a matrix's inputs.
#pragma once

#include <cstdint>

namespace sluice::base {

// `kPlain`: the run's own format. `kNf4`: 4-bit NormalFloat times a block's absolute maximum (QLoRA, 2023).
// `kInt8`: 8-bit integers times an output row's absolute maximum (Dettmers et al., LLM.int8(), 2022).
// `kMxfp4`: 4-bit floats (E2M1); each half of a block shares a power of two (OCP Microscaling Formats, 1.0).
enum class WeightFormat : uint8_t { kPlain, kNf4, kInt8, kMxfp4 };

// The names in configurations and checkpoints.
constexpr const char* name_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::kPlain: return "none";
    case WeightFormat::kNf4: return "nf4";
    case WeightFormat::kInt8: return "int8";
    case WeightFormat::kMxfp4: return "mxfp4";
  }
  return "";
}
inline constexpr WeightFormat kWeightFormats[] = {WeightFormat::kPlain, WeightFormat::kNf4,
                                                  WeightFormat::kInt8, WeightFormat::kMxfp4};

inline constexpr int64_t kWeightBlock = 64;

// Bytes of a block: its codes, then one float or two 1-byte exponents.
constexpr int64_t block_bytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::kPlain: return 0;
    case WeightFormat::kNf4: return kWeightBlock / 2 + 4;
    case WeightFormat::kInt8: return kWeightBlock + 4;
    case WeightFormat::kMxfp4: return kWeightBlock / 2 + 2;
  }
  return 0;
}

}  // namespace sluice::base
