// What a program is known by that planning serves without knowing its model: what its micro-batches take, and
// how long they may be.
#pragma once

#include <cstdint>

#include "cost/calibration.h"
#include "strategy/scheme.h"

namespace sluice::cost {

struct MeasuredPrices {
  strategy::Scheme scheme;  // its TP degree and stages
  // Forward and backward of a stage: a l² + b l nanoseconds for a sequence of l tokens, and c a micro-batch.
  double a = 0;
  double b = 0;
  double c = 0;
  int64_t max_tokens = 0;  // of a micro-batch on one lane, which its memory holds
};

// Lanes cut a sequence's time evenly; what they exchange, and what pull and push take, is not known and
// counts for nothing. InputError naming a time that is negative or not finite, times that don't grow with
// tokens, a count that no device holds.
Calibration calibration_of(const MeasuredPrices& prices);

}  // namespace sluice::cost
