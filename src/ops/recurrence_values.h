// Inputs and results of a recurrence (ops/recurrence.h has the names).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "base/interval.h"

namespace sluice::ops {

struct RecurrenceInput {
  at::Tensor q_TGK;
  at::Tensor k_TGK;
  at::Tensor v_THD;
  at::Tensor log_decay;  // log α, at most 0: [T, H], or [T, H, K] by channel
  at::Tensor rate_TH;    // β; undefined: 1
  bool delta = false;
};

// Gradients of an input's tensors, in float (double for double).
struct RecurrenceGradient {
  at::Tensor dq_TGK, dk_TGK, dv_THD;
  at::Tensor dlog_decay;
  at::Tensor drate_TH;  // undefined if rate_TH is
};

// The map of a state through each piece cut from a longer sequence: end = transition·begin + added.
struct RecurrencePassage {
  at::Tensor added_PHKD;
  at::Tensor transition;  // [P, H, K, K]; for δ = 0, a diagonal, [P, H, K, 1]
  at::Tensor of(const at::Tensor& begin_HKD, int64_t piece, base::Interval columns) const;
  // Transports a gradient backward through a piece, `added` included.
  at::Tensor back_of(const at::Tensor& dend_HKD, int64_t piece, base::Interval columns) const;
};

}  // namespace sluice::ops
