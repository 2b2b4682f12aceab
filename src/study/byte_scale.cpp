#include "study/byte_scale.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "plan/published/byte_scale.h"
#include "study/baseline_cost.h"
#include "study/fixed_layout.h"

namespace sluice::study {
std::unique_ptr<System> make_byte_scale(const SystemInputs& inputs, ByteScaleStep step,
                                        const LaneLayout& layout, plan::OffloadRule offload) {
  const plan::ByteScaleRule balance =
      layout.pp == 1 ? plan::ByteScaleRule::kDpBalance : plan::ByteScaleRule::kPpBalance;
  const int lanes = inputs.world_size / (layout.tp * layout.pp);
  const plan::ByteScaleOptions options{
      .scheme = {.tp = layout.tp, .pp = layout.pp, .cp = lanes},
      .rule = step == ByteScaleStep::kLanes ? plan::ByteScaleRule::kNaive : balance,
      .offload = offload,
      .lane_tokens = layout.tokens};
  const auto plan = [options, ranks = inputs.world_size](const std::vector<int64_t>& lengths,
                                                         const cost::CostModel& cost) {
    return SystemStep{.plan = plan::byte_scale_plan(options, lengths, cost, ranks)};
  };
  cost::CostModel cost = one_backward_cell(inputs.cost);
  plan({inputs.context_length}, cost);
  return fixed_layout(base::text(to_text(options.scheme), ", ", options.lane_tokens, " tokens a lane"),
                      std::move(cost), plan);
}

plan::StaticStrategy static_cp(const SystemInputs& inputs, const LaneLayout& layout) {
  strategy::Scheme scheme{.tp = layout.tp, .pp = layout.pp};
  const int64_t lane = std::min(layout.tokens, inputs.cost.max_len_tokens(scheme, inputs.world_size));
  while (scheme.ranks() <= inputs.world_size && inputs.context_length > lane * scheme.cp) scheme.cp *= 2;
  if (lane < 2 || scheme.ranks() > inputs.world_size) {
    throw base::InfeasibleError(base::text("static lanes of ", lane, " tokens on ", inputs.world_size,
                                           " ranks do not hold context_length ", inputs.context_length,
                                           ": shorten it"));
  }
  return {.scheme = scheme,
          .pipelines = inputs.world_size / scheme.ranks(),
          .micro_batch_tokens = (inputs.context_length + scheme.cp - 1) / scheme.cp,
          .dealing = plan::Dealing::kTurns};
}

}  // namespace sluice::study
