// The strategy under which a run generates responses, and each rank's part of the model under it.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "generate/decoder.h"
#include "runtime/engine.h"
#include "session/rollout_schemes.h"

namespace sluice::run {

class Planning;  // run/planning.h

class RolloutStrategy {
 public:
  // InputError if rl.rollout_strategy does not fit. `planning` outlives it.
  RolloutStrategy(Planning& planning, int world_size);

  // The present strategy. If none is configured: of fewest ranks until a rollout's lengths are known.
  const strategy::Strategy& strategy() const { return strategy_; }
  // All strategies that may be chosen.
  const std::vector<strategy::Strategy>& candidates() const { return candidates_; }

  // Chooses the fastest strategy for a rollout of such prompts, if responses are as long as earlier ones.
  // Returns its layout and time, if known. The same on every rank.
  std::optional<inference::GenerationLayout> choose_for(
      std::span<const int64_t> prompts, const std::vector<std::vector<int64_t>>& earlier_lengths);
  // Collective: this rank's part of the model under the present strategy, valid until engine.release().
  generate::ModelShard model_shard(runtime::Engine& engine) const;

 private:
  Planning& planning_;
  int world_size_;
  session::RolloutSchemes generation_;  // schemes to choose from
  std::vector<strategy::Strategy> candidates_;
  strategy::Strategy strategy_;
};

}  // namespace sluice::run
