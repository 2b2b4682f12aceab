// The schemes with which a run generates responses and samples: the ranks that share the model are chosen by
// the simulated time of the rollout.
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
  std::vector<strategy::Scheme> schemes;  // to choose from; the fewest ranks first
  inference::KvCacheBudget kv_cache_budget;
  int world_size = 1;

  // The schemes whose number of ranks divides this one.
  std::vector<strategy::Scheme> schemes_of(int ranks) const;
  // The fastest layout for the load; none if the costs of engine steps are unknown.
  std::optional<inference::GenerationLayout> best_for(const cost::CostModel& cost,
                                                      std::span<const inference::RequestLengths> load) const;
};

// The schemes that fit beside owned parameters and rl.kv_cache_gib. The caller reads rl.rollout_strategy.
RolloutSchemes rollout_schemes_of(const config::RunConfig& config, const cost::CostModel& cost,
                                  int world_size);

// The expected tokens of a response before the first rollout: all lengths up to the longest are equally
// likely. `number` distinguishes responses.
int64_t expected_response(const config::RlConfig& rl, int64_t number);
// The number of different lengths.
inline constexpr int64_t kExpectedLengths = 8;

// The expected load of a rollout of such prompts. Responses are as long as in an earlier rollout, whose
// groups are used in turn; without an earlier one as expected_response().
std::vector<inference::RequestLengths> expected_load(
    const config::RunConfig& config, std::span<const int64_t> prompts,
    const std::vector<std::vector<int64_t>>& earlier_lengths = {});

}  // namespace sluice::session
