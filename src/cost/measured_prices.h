// Prices that another program measured for planning that does not know its model: the times of its
// micro-batches, and their greatest length.
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
  int64_t max_tokens = 0;  // the most that a micro-batch on one lane may have
};

// Lanes cut a sequence's time evenly. Exchanges, pull and push are not known and cost nothing. InputError
// naming a time that is negative or not finite, times that do not grow with tokens, or a count that no device
// holds.
Calibration calibration_of(const MeasuredPrices& prices);

}  // namespace sluice::cost
