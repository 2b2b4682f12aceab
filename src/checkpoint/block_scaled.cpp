#include "checkpoint/block_scaled.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice::checkpoint {

float from_float8(uint8_t bits) {
  constexpr int kBias = 7, kFractionBits = 3;
  const int exponent = bits >> kFractionBits & 15, fraction = bits & 7;
  if (exponent == 15 && fraction == 7) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude =
      exponent == 0 ? std::ldexp(static_cast<float>(fraction), 1 - kBias - kFractionBits)
                    : std::ldexp(static_cast<float>(8 + fraction), exponent - kBias - kFractionBits);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

void BlockScaled::read(int64_t first, int64_t count, float* to) const {
  static const std::array<float, 256> kValues = [] {
    std::array<float, 256> values{};
    for (int bits = 0; bits < 256; ++bits)
      values[static_cast<size_t>(bits)] = from_float8(static_cast<uint8_t>(bits));
    return values;
  }();
  const int64_t grid_rows = (rows + block_rows - 1) / block_rows;
  const int64_t grid_columns = (columns + block_columns - 1) / block_columns;
  for (int64_t at = first; at < first + count;) {
    const int64_t row = at / columns, column = at % columns;  // rows count through all matrices
    const int64_t grid_row = row / rows * grid_rows + row % rows / block_rows;
    const int64_t end_column = std::min(columns, (column / block_columns + 1) * block_columns);
    const int64_t end = std::min(first + count, at + end_column - column);
    float scale = 0;
    to_floats(scales + (grid_row * grid_columns + column / block_columns) * size_of(scale_type), scale_type,
              1, &scale);
    for (; at < end; ++at) to[at - first] = scale * kValues[std::to_integer<size_t>(values[at])];
  }
}

bool fit_blocks(const std::vector<int64_t>& shape, const std::vector<int64_t>& scales,
                std::array<int64_t, 2> block, BlockScaled& blocks) {
  if (shape.size() < 2) return false;
  const size_t last = shape.size() - 1;
  blocks.rows = shape[last - 1];
  blocks.columns = shape[last];
  int64_t count = 1;
  for (const int64_t size : scales) count *= size;
  if (count == 1 && shape.size() == 2) {
    blocks.block_rows = blocks.rows;
    blocks.block_columns = blocks.columns;
    return true;
  }
  if (scales.size() != shape.size() || !std::equal(shape.begin(), shape.end() - 2, scales.begin()))
    return false;
  if (scales[last - 1] == blocks.rows && scales[last] == 1) {
    blocks.block_rows = 1;
    blocks.block_columns = blocks.columns;
    return true;
  }
  if (block[0] <= 0 || block[1] <= 0) return false;
  blocks.block_rows = block[0];
  blocks.block_columns = block[1];
  return scales[last - 1] == (blocks.rows + block[0] - 1) / block[0] &&
         scales[last] == (blocks.columns + block[1] - 1) / block[1];
}

}  // namespace sluice::checkpoint
