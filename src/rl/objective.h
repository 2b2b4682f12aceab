// What reinforcement learning makes of rewards: the advantage of each response and its tokens' weights. Pure
// functions of figures that every rank has, so that all ranks find the same.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/run_config.h"

namespace sluice::rl {

// [rl] with what its algorithm leaves open decided:
//
//              baseline  aggregate  clip       draws again  overlong
//   grpo       group     sequence   0.2        no           no        Shao et al., DeepSeekMath, 2024
//   dapo       group     token      0.2, 0.28  yes          a fifth   Yu et al., 2025
//   dr_grpo    mean      constant   0.2        no           no        Liu et al., Dr. GRPO, 2025
//   reinforce  others    token      0.2        no           no        Ahmadian et al., RLOO, 2024
//   ppo        values    token      0.2        no           no        Schulman et al., PPO, 2017
struct Objective {
  config::Baseline baseline = config::Baseline::kGroup;
  config::LossAggMode loss_agg_mode = config::LossAggMode::kToken;
  double clip_low = 0.2;
  double clip_high = 0.2;
  double dual_clip = 0;
  double kl = 0;
  bool learns_values = false;  // advantages of tokens are over a critic's values (rl/advantage.h)
  double reward_kl = 0;        // factor of the divergence that is taken from each token's reward there
  bool dynamic_sampling = false;     // until as many groups as train have rewards that differ
  int64_t overlong_buffer = 0;  // tokens before the longest response from which on length costs
};
// REQUIRES: an algorithm with rollouts.
Objective objective_of(const config::RlConfig& config);

// Of the responses to one prompt, by what the rewards are measured against (config::Baseline). All 0 where
// they are equal; one response alone has nothing to be measured against.
std::vector<double> advantages(std::span<const double> rewards, config::Baseline baseline);

// Whether there is something to be learnt from a group: its rewards differ (DAPO's dynamic sampling).
bool has_variance(std::span<const double> rewards);

// 0 up to most − buffer tokens, then falling to −1 at `most` (DAPO, equation 13: soft overlong punishment).
// Without a buffer 0.
double overlong_penalty(int64_t tokens, int64_t most, int64_t buffer);

// What a token of each response of a mini-batch counts, by the tokens that responses have, such that the sum
// of weighted losses over the number of all tokens is the aggregate:
//   kToken     the mean over all tokens (DAPO, equation 12)
//   kSequence  the mean over responses of their tokens' mean (GRPO)
//   kConstant  the sum over tokens ÷ (responses × `most`), whatever lengths they have (Dr. GRPO)
std::vector<double> token_weights(std::span<const int64_t> tokens, config::LossAggMode aggregate,
                                  int64_t most);

}  // namespace sluice::rl
