#include "checkpoint/mxfp4.h"

#include <cmath>

namespace sluice::checkpoint {

float Mxfp4Matrix::value(int64_t expert, int64_t i, int64_t o) const {
  constexpr float kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0F, -0.5, -1, -1.5, -2, -3, -4, -6};
  constexpr int kBias = 127;
  const int64_t place = (expert * out + o) * in + i;
  const auto byte = std::to_integer<unsigned>(blocks[place / 2]);
  const float value = kValues[place % 2 == 0 ? byte & 15U : byte >> 4U];
  return std::ldexp(value, std::to_integer<int>(scales[place / kMxfp4Block]) - kBias);
}

}  // namespace sluice::checkpoint
