// The part of a recurrence (ops/recurrence.h, which has the names) that some of its heads are, all at once.
// Internal to src/ops.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/recurrence_chunks.h"
#include "ops/recurrence_values.h"

namespace sluice::ops {

// What all passes over chunks need is made once. As Recurrence's functions.
class HeadsRecurrence {
 public:
  HeadsRecurrence(const RecurrenceInput& input, const RecurrenceChunks& chunks);

  at::Tensor forward(const at::Tensor& begin_PHKD, at::Tensor* end_PHKD) const;
  RecurrencePassage passage() const;
  at::Tensor begin_gradient(const at::Tensor& dout_THD) const;
  RecurrenceGradient backward(const at::Tensor& dout_THD, const at::Tensor& begin_PHKD,
                              const at::Tensor& dend_PHKD) const;

 private:
  // By batch B = N·H, of chunk n and head h the one at n·H + h.
  at::Tensor gathered(const at::Tensor& x_TX) const;       // [T, H, W] -> [B, C, W]
  at::Tensor scattered(const at::Tensor& x_BCW) const;     // back, in rows [T, H, W]
  at::Tensor by_key_heads(const at::Tensor& x_BCK) const;  // [T, G, K], summed over a key head's
  at::Tensor states(const at::Tensor& given_PHKD, int64_t columns) const;  // in their order, a copy
  at::Tensor by_piece(const at::Tensor& state_SKX) const;                  // and back
  // From the first chunks to the last: changes u of states that are zero to what it is, and the states; tells
  // what came to each chunk. And back, with gradients, where something is added at each.
  void pass(const at::Tensor& state_SKX, const at::Tensor& u_BCX, const at::Tensor& came_BKX) const;
  void pass_back(const at::Tensor& dstate_SKX, const at::Tensor& du_BCX, const at::Tensor& came_BKX,
                 const at::Tensor& added_BKX) const;
  at::Tensor updates(const at::Tensor& value_BCX) const;  // u, of states that are zero; a copy

  const RecurrenceChunks& chunks_;
  int64_t heads_, key_heads_, key_width_, width_;
  bool delta_;
  bool rated_;
  at::Tensor q_BCK, k_BCK, v_BCD, rate_BC1;
  at::Tensor sum_BCW;      // of log decays within the chunk, up to each row; W: 1 or K
  at::Tensor in_BCW;       // what a row still has of the state that the chunk begins with
  at::Tensor left_BCW;     // what the chunk's end still has of a row
  at::Tensor end_BW1;      // and of the state that it begins with
  at::Tensor left_BCK;     // of keys
  at::Tensor between_BCC;  // of decays by head: what a row has of one not behind it
  at::Tensor score_BCC;    // of a row's queries with keys up to its own, decayed
  at::Tensor overlap_BCC;  // of its keys with those before, decayed; δ = 1
  at::Tensor inverse_BCC;  // of I + β·overlap
  at::Tensor reads_BCK;    // inverse·β·(k∘in): what u loses by the state that the chunk begins with
};

}  // namespace sluice::ops
