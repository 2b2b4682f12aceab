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

// One or more matrices behind each other. An element is the number of its 8 bits times its block's scale.
struct BlockScaled {
  const std::byte* values = nullptr;
  const std::byte* scales = nullptr;
  TensorType scale_type = TensorType::kFloat32;
  int64_t rows = 0, columns = 0;              // sizes of one matrix
  int64_t block_rows = 0, block_columns = 0;  // sizes of one block; a matrix's last blocks may be smaller

  // Elements [first, first + count) in the file's order.
  void read(int64_t first, int64_t count, float* to) const;
};

// Sets the sizes of matrices of this shape [..., rows, columns] and of their blocks. There may be one scale
// for all, one for each row, or one for each `block` of [rows, columns] (0: unknown). False if `scales` have
// another shape.
bool fit_blocks(const std::vector<int64_t>& shape, const std::vector<int64_t>& scales,
                std::array<int64_t, 2> block, BlockScaled& blocks);

}  // namespace sluice::checkpoint
