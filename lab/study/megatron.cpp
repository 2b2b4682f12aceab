#include "study/megatron.h"

#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "published/lane_groups.h"
#include "published/static_strategy.h"
#include "study/fixed_layout.h"
#include "study/rival_traits.h"

namespace sluice::study {
namespace {

published::StaticStrategy best(const SystemInputs& inputs, published::Dealing dealing) {
  return published::best_static({.world_size = inputs.world_size,
                                 .context_length = inputs.context_length,
                                 .sample_batches = inputs.sample_batches,
                                 .max_cp = inputs.max_cp},
                                one_backward_cell(inputs.cost), dealing);
}

// A layout with divided experts, and its costs.
struct DividedExperts {
  published::StaticGroups choice;
  cost::CostModel cost;
  bool recompute = false;
};

std::optional<DividedExperts> best_divided(const SystemInputs& inputs) {
  std::optional<DividedExperts> best;
  for (const bool recompute : {false, true}) {
    const cost::CostModel cost = sharded_cost(inputs.cost, Sharding::kZero1, recompute, inputs.world_size);
    for (const strategy::Scheme& scheme : inputs.cost.schemes(inputs.world_size)) {
      if (inputs.world_size % scheme.ranks() != 0) continue;
      const int lanes = inputs.world_size / scheme.ranks();
      for (const int experts : expert_degrees(inputs.cost.options().model, lanes)) {
        if (experts == 1) continue;
        const strategy::Scheme degrees{.tp = scheme.tp, .pp = scheme.pp, .ep = experts};
        const auto choice = published::best_static_groups(
            sharded_program(Sharding::kZero1, degrees, strategy::Exchange::kRing, cost, inputs.world_size),
            inputs.context_length, some_batches(inputs), cost, inputs.world_size);
        if (choice && (!best || choice->mean_ns < best->choice.mean_ns)) best = {*choice, cost, recompute};
      }
    }
  }
  return best;
}

std::unique_ptr<System> divided_system(const DividedExperts& best, int ranks) {
  const strategy::Scheme& scheme = best.choice.program.scheme;
  const int replicas = scheme.cp / best.choice.group_lanes;
  std::string name = to_text(published::StaticStrategy{
      .scheme = {.tp = scheme.tp, .pp = scheme.pp, .cp = best.choice.group_lanes}, .pipelines = replicas});
  name += base::text(" EP", scheme.ep, best.recompute ? " + full recompute" : "");
  return fixed_layout(
      std::move(name), best.cost,
      [choice = best.choice, ranks](const std::vector<int64_t>& lengths, const cost::CostModel& cost) {
        return SystemStep{.plan = published::static_groups_plan(choice, lengths, cost, ranks)};
      });
}

}  // namespace

std::unique_ptr<System> make_megatron(const SystemInputs& inputs) {
  const std::optional<DividedExperts> divided = best_divided(inputs);
  try {
    const published::StaticStrategy gathered = best(inputs, published::Dealing::kTurns);
    if (!divided || gathered.mean_ns <= divided->choice.mean_ns) return make_megatron(inputs, gathered);
  } catch (const base::InfeasibleError&) {
    if (!divided) throw;
  }
  return divided_system(*divided, inputs.world_size);
}

std::unique_ptr<System> make_static(const SystemInputs& inputs) {
  return make_megatron(inputs, best(inputs, published::Dealing::kLeastWork));
}

std::unique_ptr<System> make_megatron(const SystemInputs& inputs, const published::StaticStrategy& choice) {
  return fixed_layout(
      to_text(choice), one_backward_cell(inputs.cost),
      [choice, ranks = inputs.world_size](const std::vector<int64_t>& lengths, const cost::CostModel& cost) {
        return SystemStep{.plan = published::static_plan(choice, lengths, cost, ranks)};
      });
}

}  // namespace sluice::study
