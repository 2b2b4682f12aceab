#include "plan/scheme_figures.h"

#include <algorithm>
#include <limits>

#include "cost/memory_cost.h"

namespace sluice::plan {
namespace {

// Two of the 2k even chunks of a sequence fit each lane.
int64_t longest_on(int lanes, int64_t lane_max_len_tokens) {
  constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();
  if (lanes == 1) return lane_max_len_tokens;
  return std::min(kMostTokens, std::max(lane_max_len_tokens, lane_max_len_tokens / 2 * 2 * lanes));
}

}  // namespace

SchemeFigures::SchemeFigures(const strategy::Scheme& of, const cost::CostModel& model, int world_size)
    : scheme(of), cost(model) {
  using cost::CellKind;
  const cost::MemoryCost memory(cost, scheme);
  lane_max_len_tokens = memory.max_len_tokens(world_size);
  max_len_tokens = longest_on(scheme.cp, lane_max_len_tokens);
  credit_tokens = memory.credit_tokens(world_size);
  if (scheme.cp > 1) exchanges.emplace(scheme, cost);
  for (int index = 0; index < scheme.pp; ++index) {
    const base::Interval run = cost.stage_run(scheme, index);
    Stage& added =
        stages.emplace_back(Stage{.forward = cost.cell_times(scheme, CellKind::kForward, run),
                                  .backward_input = cost.cell_times(scheme, CellKind::kBackwardInput, run),
                                  .backward_weight = cost.cell_times(scheme, CellKind::kBackwardWeight, run),
                                  .all = cost.stage_times(scheme, index),
                                  .ring_in_node = {},
                                  .ring_between_nodes = {}});
    if (scheme.cp == 1) continue;
    const auto rings = [&](bool in_node) {
      return Stage::Rings{cost.ring_times(scheme, CellKind::kForward, run, in_node),
                          cost.ring_times(scheme, CellKind::kBackwardInput, run, in_node)};
    };
    added.ring_in_node = rings(true);
    added.ring_between_nodes = rings(false);
  }
}

int SchemeFigures::fewest_lanes(int64_t length) const {
  if (length <= lane_max_len_tokens) return 1;
  const int64_t two_chunks = std::max<int64_t>(2, lane_max_len_tokens / 2 * 2);
  return static_cast<int>((length + two_chunks - 1) / two_chunks);
}

int64_t SchemeFigures::transfer_ns(int64_t tokens) const {
  const int64_t bytes = cost.transfer_bytes(scheme, tokens);
  return std::min(cost.options().intra.of_bytes(bytes), cost.options().inter.of_bytes(bytes));
}

}  // namespace sluice::plan
