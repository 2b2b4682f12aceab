#include "study/byte_scale.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "cost/memory_cost.h"
#include "published/byte_scale.h"
#include "study/fixed_layout.h"
#include "study/rival_traits.h"

namespace sluice::study {
namespace {

published::ByteScaleOptions options_of(ByteScaleStep step, const LaneLayout& layout,
                                       published::OffloadRule offload, int world_size) {
  const published::ByteScaleRule balance =
      layout.pp == 1 ? published::ByteScaleRule::kDpBalance : published::ByteScaleRule::kPpBalance;
  return {.scheme = scheme_of(layout, world_size),
          .rule = step == ByteScaleStep::kLanes ? published::ByteScaleRule::kNaive : balance,
          .offload = offload,
          .lane_tokens = layout.tokens};
}

std::unique_ptr<System> make_best(const SystemInputs& inputs, ByteScaleStep step,
                                  published::OffloadRule offload) {
  const cost::CostModel cost = one_backward_cell(inputs.cost);
  const int most_stages = offload == published::OffloadRule::kNone ? std::numeric_limits<int>::max() : 1;
  const LaneLayout layout = best_lane_layout(
      inputs, cost, most_stages, [&](const LaneLayout& each, std::span<const int64_t> lengths) {
        return published::byte_scale_plan(options_of(step, each, offload, inputs.world_size), lengths, cost,
                                          inputs.world_size);
      });
  return make_byte_scale(inputs, step, layout, offload);
}

}  // namespace

std::unique_ptr<System> make_byte_scale(const SystemInputs& inputs, ByteScaleStep step,
                                        const LaneLayout& layout, published::OffloadRule offload) {
  const published::ByteScaleOptions options = options_of(step, layout, offload, inputs.world_size);
  const auto plan = [options, ranks = inputs.world_size](const std::vector<int64_t>& lengths,
                                                         const cost::CostModel& cost) {
    return SystemStep{.plan = published::byte_scale_plan(options, lengths, cost, ranks).or_throw()};
  };
  cost::CostModel cost = one_backward_cell(inputs.cost);
  plan({inputs.context_length}, cost);
  return fixed_layout(layout_text(layout, inputs.world_size), std::move(cost), plan);
}

std::unique_ptr<System> make_byte_scale_lanes(const SystemInputs& inputs) {
  return make_best(inputs, ByteScaleStep::kLanes, published::OffloadRule::kNone);
}

std::unique_ptr<System> make_byte_scale_offload(const SystemInputs& inputs) {
  return make_best(inputs, ByteScaleStep::kLanes, published::OffloadRule::kLeastWork);
}

std::unique_ptr<System> make_byte_scale_balance(const SystemInputs& inputs) {
  return make_best(inputs, ByteScaleStep::kBalance, published::OffloadRule::kLeastWork);
}

published::StaticStrategy static_cp(const SystemInputs& inputs, const LaneLayout& layout) {
  strategy::Scheme scheme{.tp = layout.tp, .pp = layout.pp};
  const int64_t lane =
      std::min(layout.tokens, cost::MemoryCost(inputs.cost, scheme).max_len_tokens(inputs.world_size));
  while (scheme.ranks() <= inputs.world_size && inputs.context_length > lane * scheme.cp) scheme.cp *= 2;
  if (lane < 2 || scheme.ranks() > inputs.world_size) {
    throw base::InfeasibleError(base::text("static lanes of ", lane, " tokens on ", inputs.world_size,
                                           " ranks do not hold context_length ", inputs.context_length,
                                           ": shorten it"));
  }
  return {.scheme = scheme,
          .pipelines = inputs.world_size / scheme.ranks(),
          .micro_batch_tokens = (inputs.context_length + scheme.cp - 1) / scheme.cp,
          .dealing = published::Dealing::kTurns};
}

}  // namespace sluice::study
