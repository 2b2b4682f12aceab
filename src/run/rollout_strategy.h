// How a run holds its model when it says texts: under which strategy, and who has which part of it.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "generate/decoder.h"
#include "run/planning.h"
#include "runtime/engine.h"
#include "session/rollout_schemes.h"

namespace sluice::run {

class RolloutStrategy {
 public:
  // InputError for a rl.rollout_strategy that doesn't fit. `planning` outlives it.
  RolloutStrategy(Planning& planning, int world_size);

  // At present. Where the configuration names none, of fewest ranks until a rollout's lengths are known.
  const strategy::Strategy& strategy() const { return strategy_; }
  // All that it may come to.
  const std::vector<strategy::Strategy>& candidates() const { return candidates_; }

  // From now on that which says a rollout of such prompts soonest, if responses are as those before; what it
  // takes, where that is known. The same on every rank.
  std::optional<inference::GenerationLayout> choose_for(
      std::span<const int64_t> prompts, const std::vector<std::vector<int64_t>>& earlier_lengths);
  // Collective: this rank's part of the model under that, until engine.release().
  generate::ModelShard model_shard(runtime::Engine& engine) const;

 private:
  Planning& planning_;
  int world_size_;
  session::RolloutSchemes generation_;  // schemes to choose from
  std::vector<strategy::Strategy> candidates_;
  strategy::Strategy strategy_;
};

}  // namespace sluice::run
