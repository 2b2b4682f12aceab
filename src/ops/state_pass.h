// How states go from chunk to chunk of a recurrence (ops/recurrence.h), forward or backward: what is left to
// be done one chunk after the other, once all that lies within chunks is made.
//
// Names as there: B = N·H, of chunk n and head h the one at n·H + h; S = P·H likewise of pieces in the order
// of their chunks; X columns.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/recurrence_chunks.h"

namespace sluice::ops {

// At each chunk, of the state that comes to it:
//   rows  += read_factor·read·state
//   state  = end∘state + added + left_factor·leftᵀ·rows
struct StatePass {
  const RecurrenceChunks& chunks;
  int64_t heads = 0;
  bool back = false;     // from the last chunks to the first
  at::Tensor state_SKX;  // what comes to each piece; then what leaves it
  at::Tensor rows_BCX;   // changed in place
  at::Tensor read_BCK;   // undefined: rows stay as they are
  double read_factor = 1;
  at::Tensor end_BW1;    // W: 1 or K
  at::Tensor added_BKX;  // undefined: zero
  at::Tensor left_BCK;   // undefined: zero
  double left_factor = 1;
  at::Tensor came_BKX;  // takes what came to each chunk; undefined: that isn't wanted. May be added_BKX
};

void pass_states(const StatePass& pass);

// The same by ATen's operators, on any device: what pass_states() is tested against.
namespace aten {
void pass_states(const StatePass& pass);
}

}  // namespace sluice::ops
