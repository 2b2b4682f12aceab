#include "study/megatron_dcp.h"

#include <limits>
#include <utility>

#include "published/dynamic_cp.h"
#include "study/fixed_layout.h"
#include "study/lane_layout.h"
#include "study/rival_traits.h"

namespace sluice::study {

std::unique_ptr<System> make_megatron_dcp(const SystemInputs& inputs) {
  cost::CostModel cost = one_backward_cell(inputs.cost);
  const auto plan = [ranks = inputs.world_size](const LaneLayout& layout, std::span<const int64_t> lengths,
                                                const cost::CostModel& costs) {
    return published::dynamic_cp_plan({.scheme = scheme_of(layout, ranks), .lane_tokens = layout.tokens},
                                      lengths, costs, ranks);
  };
  const LaneLayout layout = best_lane_layout(
      inputs, cost, std::numeric_limits<int>::max(),
      [&](const LaneLayout& each, std::span<const int64_t> lengths) { return plan(each, lengths, cost); });
  return fixed_layout(layout_text(layout, inputs.world_size), std::move(cost),
                      [=](const std::vector<int64_t>& lengths, const cost::CostModel& costs) {
                        return SystemStep{.plan = plan(layout, lengths, costs).or_throw()};
                      });
}

}  // namespace sluice::study
