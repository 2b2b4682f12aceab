#include "study/megatron_dcp.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "plan/published/dynamic_cp.h"
#include "study/baseline_cost.h"
#include "study/fixed_layout.h"

namespace sluice::study {
namespace {

// Nothing when the scheme does not hold some batch.
std::optional<int64_t> total_ns(const plan::DynamicCpOptions& options, const SystemInputs& inputs,
                                const cost::CostModel& cost) {
  int64_t total_ns = 0;
  try {
    plan::dynamic_cp_plan(options, std::vector<int64_t>{inputs.context_length}, cost, inputs.world_size);
    for (const std::vector<int64_t>& batch : inputs.sample_batches) {
      total_ns += plan::dynamic_cp_plan(options, batch, cost, inputs.world_size).estimated_ns;
    }
  } catch (const base::InfeasibleError&) {
    return std::nullopt;
  }
  return total_ns;
}

plan::DynamicCpOptions best_options(const SystemInputs& inputs, const cost::CostModel& cost) {
  std::optional<plan::DynamicCpOptions> best;
  int64_t least_ns = 0;
  for (strategy::Scheme scheme : cost.schemes(inputs.world_size)) {
    scheme.cp = inputs.world_size / scheme.ranks();
    const int64_t lane = cost.max_len_tokens(scheme, inputs.world_size);
    for (const int64_t tokens : {lane, lane / 2, lane / 4}) {
      if (tokens < 1) continue;
      const plan::DynamicCpOptions options{.scheme = scheme, .lane_tokens = tokens};
      const std::optional<int64_t> ns = total_ns(options, inputs, cost);
      if (!ns || (best && *ns >= least_ns)) continue;
      best = options;
      least_ns = *ns;
    }
  }
  if (best) return *best;
  throw base::InfeasibleError(base::text("no lanes on ", inputs.world_size, " ranks hold context_length ",
                                         inputs.context_length, ": shorten it"));
}

}  // namespace

std::unique_ptr<System> make_megatron_dcp(const SystemInputs& inputs) {
  cost::CostModel cost = one_backward_cell(inputs.cost);
  const plan::DynamicCpOptions options = best_options(inputs, cost);
  return fixed_layout(base::text(to_text(options.scheme), ", ", options.lane_tokens, " tokens a lane"),
                      std::move(cost),
                      [options, ranks = inputs.world_size](const std::vector<int64_t>& lengths,
                                                           const cost::CostModel& costs) {
                        return SystemStep{.plan = plan::dynamic_cp_plan(options, lengths, costs, ranks)};
                      });
}

}  // namespace sluice::study
