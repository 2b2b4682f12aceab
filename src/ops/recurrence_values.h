// What a recurrence takes and gives (ops/recurrence.h, which has the names).
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

// Of an input's tensors, in float (double of double).
struct RecurrenceGradient {
  at::Tensor dq_TGK, dk_TGK, dv_THD;
  at::Tensor dlog_decay;
  at::Tensor drate_TH;  // undefined where the rate is
};

// What pieces that are cut from longer sequences do to a state: end = transition·begin + added.
struct RecurrencePassage {
  at::Tensor added_PHKD;
  at::Tensor transition;  // [P, H, K, K], or of δ = 0, where it is diagonal, [P, H, K, 1]
  at::Tensor of(const at::Tensor& begin_HKD, int64_t piece, base::Interval columns) const;
  // Of a gradient on its way back, which `added` belongs to.
  at::Tensor back_of(const at::Tensor& dend_HKD, int64_t piece, base::Interval columns) const;
};

}  // namespace sluice::ops
