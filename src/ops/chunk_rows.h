// Moves rows of packed sequences into the chunks of a recurrence (recurrence_chunks.h), and back.
//
// T: rows; H: heads; W: numbers of a row and head; B = chunks · heads, head by head within a chunk; C: places
// of a chunk.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/recurrence_chunks.h"

namespace sluice::ops {

// x [T, H ÷ n, W] -> [B, C, W] in the type in which such rows accumulate: each head serves n neighbouring
// ones. Places without a row are zero. x may be a view whose last dimension is dense.
at::Tensor rows_in_chunks(const at::Tensor& x_THW, const RecurrenceChunks& chunks, int64_t heads);

// x [B, C, W] -> [T, H ÷ `summed`, W], summed over so many neighbouring heads. Rows of no chunk are zero.
at::Tensor rows_of_chunks(const at::Tensor& x_BCW, const RecurrenceChunks& chunks, int64_t heads,
                          int64_t summed = 1);

// From ATen's operators, on any device.
namespace aten {
at::Tensor rows_in_chunks(const at::Tensor& x_THW, const RecurrenceChunks& chunks, int64_t heads);
at::Tensor rows_of_chunks(const at::Tensor& x_BCW, const RecurrenceChunks& chunks, int64_t heads,
                          int64_t summed);
}  // namespace aten

}  // namespace sluice::ops
