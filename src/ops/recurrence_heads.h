// A recurrence (ops/recurrence.h has the names) over some of the heads, all at once. Internal to
// src/ops.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/recurrence_chunks.h"
#include "ops/recurrence_values.h"

namespace sluice::ops {

// Functions as Recurrence's. Tensors that all passes over chunks need are computed once.
class HeadsRecurrence {
 public:
  HeadsRecurrence(const RecurrenceInput& input, const RecurrenceChunks& chunks);

  at::Tensor forward(const at::Tensor& begin_PHKD, at::Tensor* end_PHKD) const;
  RecurrencePassage passage() const;
  at::Tensor begin_gradient(const at::Tensor& dout_THD) const;
  RecurrenceGradient backward(const at::Tensor& dout_THD, const at::Tensor& begin_PHKD,
                              const at::Tensor& dend_PHKD) const;

 private:
  // Batch dimension B = N·H: chunk n and head h have index n·H + h.
  at::Tensor gathered(const at::Tensor& x_THW) const;      // [T, H, W] -> [B, C, W]
  at::Tensor scattered(const at::Tensor& x_BCW) const;     // back, in rows [T, H, W]
  at::Tensor by_key_heads(const at::Tensor& x_BCK) const;  // [T, G, K], summed over a key head's
  at::Tensor states(const at::Tensor& given_PHKD, int64_t columns) const;  // in chunk order, a copy
  at::Tensor by_piece(const at::Tensor& state_SKX) const;                  // and back
  // pass() goes from first to last chunks: corrects u, which was computed for zero states, and stores each
  // chunk's incoming state. pass_back() does so backward, with gradients, and adds added_BKX at each chunk.
  void pass(const at::Tensor& state_SKX, const at::Tensor& u_BCX, const at::Tensor& came_BKX) const;
  void pass_back(const at::Tensor& dstate_SKX, const at::Tensor& du_BCX, const at::Tensor& came_BKX,
                 const at::Tensor& added_BKX) const;
  at::Tensor updates(const at::Tensor& value_BCX) const;  // u for zero states; a copy

  const RecurrenceChunks& chunks_;
  int64_t heads_, key_heads_, key_width_, width_;
  bool delta_;
  bool rated_;
  at::Tensor q_BCK, k_BCK, v_BCD, rate_BC1;
  at::Tensor sum_BCW;      // sums of log decays within the chunk, up to each row; W: 1 or K
  at::Tensor in_BCW;       // factor of the chunk's initial state at each row
  at::Tensor left_BCW;     // factor of each row at the chunk's end
  at::Tensor end_BW1;      // factor of the chunk's initial state at its end
  at::Tensor left_BCK;     // keys times left_BCW
  at::Tensor between_BCC;  // decays by head: factor of row j at row i >= j
  at::Tensor score_BCC;    // decayed products of a row's queries with keys up to the row
  at::Tensor overlap_BCC;  // decayed products of a row's keys with keys before it; δ = 1
  at::Tensor inverse_BCC;  // inverse of I + β·overlap
  at::Tensor reads_BCK;    // inverse·β·(k∘in): u loses reads·S for the chunk's initial state S
};

}  // namespace sluice::ops
