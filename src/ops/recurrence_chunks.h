// Chunks of rows that a recurrence over packed sequences is computed by (ops/recurrence.h, which has the
// names).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "base/interval.h"

namespace sluice::ops {

// Rows of a chunk where sequences are not short.
inline constexpr int64_t kUsualChunk = 64;

// How pieces that lie end to end are cut. Chunks are ordered by their place in their pieces, so that those
// that states reach at once stand together.
struct RecurrenceChunks {
  int64_t chunk = 0;                   // C
  int64_t rows = 0;                    // T, those behind the last piece included
  at::Tensor row_M;                    // int64 [N·C]: which row a place has; T: none
  at::Tensor place_T;                  // int64 [T]: where a row's place is; N·C: nowhere
  std::vector<base::Interval> levels;  // of N: the first chunks of pieces, then their second ones, …
  at::Tensor level_begins_L1;          // int64 [levels + 1]: the same
  at::Tensor piece_of_state_P, state_of_piece_P;  // int64: pieces with most chunks come first

  int64_t pieces() const { return state_of_piece_P.size(0); }
};
// Of `rows` rows, of which those behind the pieces are left alone: their outputs and gradients are zero.
// `chunk` 0: what wastes least on pieces of these lengths. REQUIRES: at least one piece, lengths > 0.
RecurrenceChunks recurrence_chunks(const std::vector<int64_t>& lengths, int64_t rows,
                                   const at::Device& device, int64_t chunk = 0);

}  // namespace sluice::ops
