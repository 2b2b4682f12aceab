// Losses that balance experts and do not know how the batch was cut. Each token adds
//   factor · Σ_e f_e · p_e,   p_e: its score of e,   f_e: E times the share of visits that go to e,
// of its sequence's visits, wherever that's pieces lie (DeepSeek-V3, 2024, equations 17 to 20); or of all
// visits of the step before (Qiu et al., Demons in the Detail, 2025, balance over a whole batch: of this step
// nobody knows them before its last micro-batch). Visits are no function of parameters, so the gradient of a
// row's score is factor · f_e.
#pragma once

#include <ATen/core/Tensor.h>

#include "layers/lane_channel.h"
#include "layers/row_layout.h"

namespace sluice::layers {

// f of each sequence of the micro-batch, in the type of `like`, and zeros for inert rows behind: [sequences +
// 1, E]. Lanes that share sequences exchange their visits, so all call it at once; without such `lanes` may
// be null.
at::Tensor shares_of_assignments(LaneChannel* lanes, const SequenceRows& sequences, const at::Tensor& id_TK,
                                 int64_t experts, const at::TensorOptions& like);

// f of a step in which experts had so many visits: all 1 where there were none. [E]
at::Tensor shares_of_loads(const at::Tensor& visits_E);

}  // namespace sluice::layers
