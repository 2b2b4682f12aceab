#include "plan/scheme_figures.h"

#include <algorithm>
#include <limits>

#include "base/never.h"
#include "cost/fsdp_cost.h"
#include "cost/memory_cost.h"

namespace sluice::plan {
namespace {

// Assumes operations of the model's ends as long as a lane's tokens make them, and
// blocks that hide all transfers beside them. Valid for any placement: as many
// lanes of a share group on each node as fit, with any runs that sum gradients.
int64_t least_pass_ends_ns(const cost::CostModel& cost, const strategy::Scheme& scheme, int64_t lane_tokens) {
  using cost::CellKind;
  constexpr int64_t kLongNs = cost::kLongestNs / 2;
  const strategy::Topology& topology = cost.options().topology;
  const int in_node = std::min(topology.lanes_of_node(scheme.tp), scheme.fsdp);
  const int level = topology.level_between_nodes(scheme.fsdp * scheme.tp);
  int64_t least_ns = base::kNever;
  for (int lanes = 1; lanes <= in_node; ++lanes) {
    if (scheme.fsdp % lanes != 0) continue;
    const cost::FsdpCost share(cost, scheme, {.lanes_in_node = in_node, .lanes = lanes, .level = level});
    int64_t ends_ns = 0;
    for (const CellKind kind : {CellKind::kForward, CellKind::kBackward})
      ends_ns += share.cell_ns(kind, cost.stage_run(scheme, 0), {.tokens = lane_tokens}, kLongNs) - kLongNs;
    least_ns = std::min(least_ns, ends_ns);
  }
  return least_ns;
}

}  // namespace

int64_t longest_on(int lanes, int64_t lane_max_len_tokens) {
  constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();
  if (lanes == 1) return lane_max_len_tokens;
  return std::min(kMostTokens, std::max(lane_max_len_tokens, lane_max_len_tokens / 2 * 2 * lanes));
}

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
    const auto rings = [&](int level) {
      return Stage::Rings{cost.ring_times(scheme, CellKind::kForward, run, level),
                          cost.ring_times(scheme, CellKind::kBackwardInput, run, level)};
    };
    added.ring_in_node = rings(0);
    added.ring_between_nodes = rings(1);
  }
  if (scheme.fsdp > 1 && scheme.pp == 1) pass_ends_ns = least_pass_ends_ns(cost, scheme, lane_max_len_tokens);
}

int SchemeFigures::fewest_lanes(int64_t length) const {
  if (length <= lane_max_len_tokens) return 1;
  const int64_t two_chunks = std::max<int64_t>(2, lane_max_len_tokens / 2 * 2);
  return static_cast<int>((length + two_chunks - 1) / two_chunks);
}

int64_t SchemeFigures::path_ns(const cost::Work& work) const {
  int64_t path_ns = (scheme.pp - 1 + returns()) * transfer_ns(work.tokens) +
                    stages.front().backward_weight.of_work(work) + pass_ends_ns;
  for (const Stage& stage : stages)
    path_ns += stage.forward.of_work(work) + stage.backward_input.of_work(work);
  return path_ns;
}

int64_t SchemeFigures::transfer_ns(int64_t tokens) const {
  const int64_t bytes = cost.transfer_bytes(scheme, tokens);
  return std::min(cost.options().intra.of_bytes(bytes), cost.options().inter.of_bytes(bytes));
}

}  // namespace sluice::plan
