// Matrices of 8-bit floats with a scale for each block of rows and columns, as DeepSeek-V3 is published.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "checkpoint/tensor_type.h"

namespace sluice::checkpoint {

// E4M3 without infinities (1 sign, 4 exponent (bias 7), 3 fraction bits).
float from_float8(uint8_t bits);

// One or more matrices behind each other. A value is that of its 8 bits times its block's scale.
struct BlockScaled {
  const std::byte* values = nullptr;
  const std::byte* scales = nullptr;
  TensorType scale_type = TensorType::kFloat32;
  int64_t rows = 0, columns = 0;              // of a matrix
  int64_t block_rows = 0, block_columns = 0;  // of a block; the last ones of a matrix may be smaller

  // Elements [first, first + count), in the order of the file.
  void read(int64_t first, int64_t count, float* to) const;
};

// Sets the sizes of matrices of this shape [..., rows, columns], and those of the blocks: one scale for all,
// one a row, or one for each `block` of [rows, columns] (0: not known). False where `scales` have another
// shape.
bool fit_blocks(const std::vector<int64_t>& shape, const std::vector<int64_t>& scales,
                std::array<int64_t, 2> block, BlockScaled& blocks);

}  // namespace sluice::checkpoint
