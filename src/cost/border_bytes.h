// Bytes that rows at the borders of a stage take. A row is that of the residual stream and, in some models,
// what operations carry beside it (model/border_rows.h).
#pragma once

#include <cstdint>

#include "cost/cost_model.h"

namespace sluice::cost {

// For a token on a rank of the stage.
struct BorderBytes {
  int64_t row = 0;  // of the residual stream alone
  // Over the border below it: rows that wait for their forward, or later their gradients, until they are
  // sent. The first stage has none.
  int64_t entering = 0;
  // From a micro-batch's forward to its backward: what is carried from below; and over the border above rows
  // to be sent, or later their gradients. The last stage has the gradient of the head's input instead.
  int64_t held = 0;
  // While a backward runs, beyond `held`: gradients of what is carried.
  int64_t gradients = 0;
};

BorderBytes border_bytes(const CostModel& cost, const strategy::Scheme& scheme, int stage);

}  // namespace sluice::cost
