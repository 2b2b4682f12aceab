// Losses that balance experts, independent of how the batch is cut. Each token adds
//   factor · Σ_e f_e · p_e,   p_e: its score of e,   f_e: E times the share of assignments that go to e.
// Assignments are counted over the token's whole sequence, on all lanes (DeepSeek-V3, 2024, equations 17 to
// 20). Or they are those of the previous step, in place of this global batch (Qiu et al., Demons in the
// Detail, 2025), whose counts are known only after its last micro-batch. Assignments have no gradient, so the
// gradient of a row's score is factor · f_e.
#pragma once

#include <ATen/core/Tensor.h>

#include "layers/lane_channel.h"
#include "layers/row_layout.h"

namespace sluice::layers {

// f of each sequence of the micro-batch, [sequences + 1, E], in the type of `like`; the last row is zero and
// belongs to inert rows. Lanes that share sequences sum their assignments, so the call is collective over
// them. `lanes` may be null if no sequence is shared.
at::Tensor shares_of_assignments(LaneChannel* lanes, const SequenceRows& sequences, const at::Tensor& id_TK,
                                 int64_t experts, const at::TensorOptions& like);

// f of a step from its assignments by expert; all 1 if there were none. [E]
at::Tensor shares_of_loads(const at::Tensor& visits_E);

}  // namespace sluice::layers
