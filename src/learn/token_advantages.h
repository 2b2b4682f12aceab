// Advantages of tokens in a rollout, over what a critic expects.
#pragma once

#include <cstdint>
#include <deque>

#include "config/run_config.h"
#include "rl/episode.h"
#include "rl/objective.h"
#include "run/critic.h"

namespace sluice::learn {

// Collective: of all mini-batches of a rollout; gives the critic's evaluations of them as one act. REQUIRES: with
// a divergence in rewards old and reference log-probabilities are known.
report::ActRecord find_token_advantages(run::Critic& critic, const config::RlConfig& config,
                                        const rl::Objective& objective, int64_t step,
                                        std::deque<rl::MiniBatch>& batches);

}  // namespace sluice::learn
