// Arguments of ops/state_pass.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/recurrence_chunks.h"

namespace sluice::ops {

// At each chunk, with its incoming state:
//   rows  += read_factor·read·state
//   state  = end∘state + added + left_factor·leftᵀ·rows
struct StatePass {
  const RecurrenceChunks& chunks;
  int64_t heads = 0;
  bool back = false;     // from the last chunks to the first
  at::Tensor state_SKX;  // each piece's initial state; then its final state
  at::Tensor rows_BCX;   // changed in place
  at::Tensor read_BCK;   // undefined: rows stay unchanged
  double read_factor = 1;
  at::Tensor end_BW1;    // W: 1 or K
  at::Tensor added_BKX;  // undefined: zero
  at::Tensor left_BCK;   // undefined: zero
  double left_factor = 1;
  at::Tensor came_BKX;  // receives each chunk's incoming state; undefined: not wanted. May be added_BKX
};

}  // namespace sluice::ops
