// The cost of a head if not every token has a loss.
#pragma once

#include <cstdint>

#include "cost/cost_model.h"

namespace sluice::cost {

// The options with a head for data of which `loss_ppm` parts per million have a loss. The head's time a token
// was calibrated with a loss on every token, but other rows do not reach it (layers/head.h). Its constant
// stays, and so does its memory, which is proved with each step's masks (strategy::Sequence::loss_tokens).
// An MTP layer computes all rows, so its part of the time stays too, the head's matrix excepted.
// Published tables, whose stages hold their head, stay as they are. REQUIRES: 0 < loss_ppm <= 1,000,000.
CostModel::Options with_loss_share(CostModel::Options options, int64_t loss_ppm);

}  // namespace sluice::cost
