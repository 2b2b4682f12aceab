#include "run/rollout_strategy.h"

#include <algorithm>

#include "run/model_shard.h"
#include "run/planning.h"

namespace sluice::run {

// Without a configured strategy, candidates are all that hold the model beside owned parameters and KV cache.
RolloutStrategy::RolloutStrategy(Planning& planning, int world_size)
    : planning_(planning),
      world_size_(world_size),
      generation_(session::rollout_schemes_of(planning.config(), planning.cost(), world_size)) {
  const std::string& asked = planning.config().parallel.rollout_strategy;
  if (!asked.empty()) {
    candidates_ = {
        parse_rollout_strategy(asked, planning.table().model, world_size, "[config] rl.rollout_strategy")};
    const std::vector<strategy::Pipeline>& pipelines = candidates_.front().pipelines;
    generation_.schemes.clear();  // no choice is left; the time of unequal pipelines is not known
    if (std::ranges::all_of(pipelines,
                            [&](const auto& each) { return each.scheme == pipelines.front().scheme; }))
      generation_.schemes = {pipelines.front().scheme};
  } else {
    for (const strategy::Scheme& scheme : generation_.schemes)
      candidates_.push_back(inference::GenerationLayout{scheme, world_size / scheme.ranks()}.strategy());
  }
  strategy_ = candidates_.front();
}

std::optional<inference::GenerationLayout> RolloutStrategy::choose_for(
    std::span<const int64_t> prompts, const std::vector<std::vector<int64_t>>& earlier_lengths) {
  const std::optional<inference::GenerationLayout> best = generation_.best_for(
      planning_.cost(), session::expected_load(planning_.config(), prompts, earlier_lengths));
  if (best) strategy_ = best->strategy();
  return best;
}

generate::ModelShard RolloutStrategy::model_shard(runtime::Engine& engine) const {
  const runtime::ParameterStore::Options& store = engine.store().options();
  const model::ParameterTable& table = planning_.table();
  const graph::LinkMachine links{world_size_, planning_.cost().options().topology};
  return run::model_shard(
      table, engine.hold(strategy_, planning_.link_plans().of(table, strategy_, links)),
      at::TensorOptions().dtype(runtime::scalar_type(store.precision.compute)).device(store.device));
}

}  // namespace sluice::run
