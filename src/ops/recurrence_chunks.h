// The chunks of rows in which a recurrence over packed sequences is computed (ops/recurrence.h has the
// names).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "base/interval.h"

namespace sluice::ops {

// Rows of a chunk unless sequences are short.
inline constexpr int64_t kUsualChunk = 64;

// The division of adjacent pieces into chunks. Chunks are ordered by their place within their pieces, so that
// chunks whose states are computed together are adjacent.
struct RecurrenceChunks {
  int64_t chunk = 0;                              // C
  int64_t rows = 0;                               // T, with the rows behind the last piece
  at::Tensor row_M;                               // int64 [N·C]: the row at each place; T: none
  at::Tensor place_T;                             // int64 [T]: the place of each row; N·C: none
  std::vector<base::Interval> levels;             // ranges of N: the first chunks of pieces, the second, …
  at::Tensor level_begins_L1;                     // int64 [levels + 1]: the same
  at::Tensor piece_of_state_P, state_of_piece_P;  // int64: pieces with most chunks come first

  int64_t pieces() const { return state_of_piece_P.size(0); }
};
// Divides `rows` rows; rows behind the pieces join no chunk, and have zero outputs and gradients. `chunk` 0:
// the size that wastes least for these lengths. REQUIRES: at least one piece, lengths > 0.
RecurrenceChunks recurrence_chunks(const std::vector<int64_t>& lengths, int64_t rows,
                                   const at::Device& device, int64_t chunk = 0);

}  // namespace sluice::ops
