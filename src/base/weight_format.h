// In how many bits a frozen base keeps its matrices, in blocks of 64 numbers along a matrix's inputs.
#pragma once

#include <cstdint>

namespace sluice::base {

// As they are computed with; NormalFloat of 4 bits times a block's absolute maximum (Dettmers et al., QLoRA,
// 2023); whole numbers of 8 bits times an output row's absolute maximum (Dettmers et al., LLM.int8(), 2022);
// floats of 4 bits (E2M1) in halves of a block that share a power of two (OCP Microscaling Formats, 1.0).
enum class WeightFormat : uint8_t { kPlain, kNf4, kInt8, kMxfp4 };

// As configurations and checkpoints call them.
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

// Bytes of a block: codes, behind them a float or two exponents of a byte.
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
