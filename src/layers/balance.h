// A loss that balances experts and does not know how the batch was cut: by sequence, wherever its pieces lie
// (DeepSeek-V3, 2024, equations 17 to 20). A sequence of T tokens adds, for each of them,
//   factor · Σ_e f_e · P_e,   f_e = E/(K·T) · its visits to e,   P_e = mean of its rows' scores of e.
// Visits are no function of parameters, so its gradient of a row's score is factor · f_e.
#pragma once

#include <ATen/core/Tensor.h>

#include "layers/lane_channel.h"
#include "layers/micro_batch_layout.h"

namespace sluice::layers {

// f of each sequence of the micro-batch, in the type of `like`, and zeros for inert rows behind: [sequences +
// 1, E]. Lanes that share sequences exchange their visits, so all call it at once; without such `lanes` may
// be null.
at::Tensor shares_of_visits(LaneChannel* lanes, const SequenceRows& sequences, const at::Tensor& id_TK,
                            int64_t experts, const at::TensorOptions& like);

}  // namespace sluice::layers
