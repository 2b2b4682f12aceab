// Advantages of tokens in a rollout, over what a critic expects.
#pragma once

#include <cstdint>
#include <deque>

#include "config/run_config.h"
#include "rl/episode.h"
#include "rl/objective.h"
#include "run/critic.h"

namespace sluice::learn {

// Collective: sets the advantages of all mini-batches of a rollout; returns the critic's evaluations as one
// act. REQUIRES: old and reference log-probabilities are known if rewards take a divergence.
report::ActRecord find_token_advantages(run::Critic& critic, const config::RlConfig& config,
                                        const rl::Objective& objective, int64_t step,
                                        std::deque<rl::MiniBatch>& batches);

}  // namespace sluice::learn
