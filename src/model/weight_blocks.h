// Blocks of a coded matrix (base/weight_format.h), one at a time: numbers to codes and back. The arithmetic
// is that of bitsandbytes (quantize_4bit, dequantize_4bit, int8_vectorwise_quant) and of the OCP Microscaling
// Formats, in float.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/weight_format.h"

namespace sluice::model {

// Values of NF4 codes, quantiles of a normal distribution, and values of E2M1 codes.
inline constexpr std::array<float, 16> kNf4Values = {-1.0F,
                                                     -0.6961928009986877F,
                                                     -0.5250730514526367F,
                                                     -0.39491748809814453F,
                                                     -0.28444138169288635F,
                                                     -0.18477343022823334F,
                                                     -0.09105003625154495F,
                                                     0.0F,
                                                     0.07958029955625534F,
                                                     0.16093020141124725F,
                                                     0.24611230194568634F,
                                                     0.33791524171829224F,
                                                     0.44070982933044434F,
                                                     0.5626170039176941F,
                                                     0.7229568362236023F,
                                                     1.0F};
inline constexpr std::array<float, 16> kE2m1Values = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                                      -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

// A number of int8 is code · maximum · kInt8Step.
inline constexpr float kInt8Step = 7.874015718698502e-3F;

// Codes `count` numbers, at most kWeightBlock, into a block. `maximum`: for int8 only, the largest magnitude
// of the numbers' output row.
void encode_block(base::WeightFormat format, const float* numbers, int64_t count, float maximum,
                  std::byte* block);
// Decodes all kWeightBlock numbers. Numbers beyond the matrix are zero or undefined.
void decode_block(base::WeightFormat format, const std::byte* block, float* numbers);

// The float behind a block's codes. REQUIRES: NF4 or int8.
float block_maximum(base::WeightFormat format, const std::byte* block);
void set_block_maximum(base::WeightFormat format, float maximum, std::byte* block);

}  // namespace sluice::model
