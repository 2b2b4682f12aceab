// How a run says responses and samples: which ranks have the model together, chosen by what the rollout's
// texts take on them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "config/run_config.h"
#include "cost/cost_model.h"
#include "inference/layouts.h"

namespace sluice::session {

struct RolloutSchemes {
  std::vector<strategy::Scheme> schemes;  // that it may choose from; those of fewest ranks first
  inference::KvCacheBudget kv_cache_budget;
  int world_size = 1;

  // Of them those that divide so many ranks.
  std::vector<strategy::Scheme> schemes_of(int ranks) const;
  // The fastest of them for the load, if any pass's cost is known; else none.
  std::optional<inference::GenerationLayout> best_for(const cost::CostModel& cost,
                                                      std::span<const inference::RequestLengths> load) const;
};

// Beside what ranks own of the model and rl.kv_cache_gib. rl.rollout_strategy is left to the caller.
RolloutSchemes rollout_schemes_of(const config::RunConfig& config, const cost::CostModel& cost,
                                  int world_size);

// Tokens of a response before any was said: all lengths up to the longest are taken for equally likely.
// `number` tells responses apart.
int64_t expected_response(const config::RlConfig& rl, int64_t number);
// How many are different.
inline constexpr int64_t kExpectedLengths = 8;

// A rollout of such prompts as it is expected: their responses as long as those of a rollout before, whose
// groups are taken in turn; of the first one as expected_response().
std::vector<inference::RequestLengths> expected_load(
    const config::RunConfig& config, std::span<const int64_t> prompts,
    const std::vector<std::vector<int64_t>>& earlier_lengths = {});

}  // namespace sluice::session
