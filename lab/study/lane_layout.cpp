#include "study/lane_layout.h"

#include <optional>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "cost/memory_cost.h"

namespace sluice::study {
namespace {

// The total time of the samples; nullopt if the layout does not hold the context or some batch.
std::optional<int64_t> total_ns(const LaneLayout& layout, const SystemInputs& inputs,
                                const PlanOnLanes& plan) {
  if (!plan(layout, std::vector<int64_t>{inputs.context_length})) return std::nullopt;
  int64_t total_ns = 0;
  for (const std::vector<int64_t>& batch : inputs.sample_batches) {
    const base::Feasible<strategy::StepPlan> planned = plan(layout, batch);
    if (!planned) return std::nullopt;
    total_ns += planned->estimated_ns;
  }
  return total_ns;
}

}  // namespace

strategy::Scheme scheme_of(const LaneLayout& layout, int world_size) {
  return {.tp = layout.tp, .pp = layout.pp, .cp = world_size / (layout.tp * layout.pp)};
}

std::string layout_text(const LaneLayout& layout, int world_size) {
  return base::text(to_text(scheme_of(layout, world_size)), ", ", layout.tokens, " tokens a lane");
}

LaneLayout best_lane_layout(const SystemInputs& inputs, const cost::CostModel& cost, int most_stages,
                            const PlanOnLanes& plan) {
  std::optional<LaneLayout> best;
  int64_t least_ns = 0;
  for (const strategy::Scheme& scheme : cost.schemes(inputs.world_size)) {
    if (scheme.pp > most_stages) continue;
    const LaneLayout lane{.tp = scheme.tp, .pp = scheme.pp};
    const int64_t held =
        cost::MemoryCost(cost, scheme_of(lane, inputs.world_size)).max_len_tokens(inputs.world_size);
    for (const int64_t tokens : {held, held / 2, held / 4}) {
      if (tokens < 1) continue;
      const LaneLayout layout{.tp = scheme.tp, .pp = scheme.pp, .tokens = tokens};
      const std::optional<int64_t> ns = total_ns(layout, inputs, plan);
      if (!ns || (best && *ns >= least_ns)) continue;
      best = layout;
      least_ns = *ns;
    }
  }
  if (best) return *best;
  throw base::InfeasibleError(base::text("no lanes on ", inputs.world_size, " ranks hold context_length ",
                                         inputs.context_length, ": shorten it"));
}

}  // namespace sluice::study
