// Advantages of responses and weights of their tokens, from rewards. Pure functions of figures that every
// rank has, so that all ranks find the same.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/run_config.h"

namespace sluice::rl {

// [rl] with the defaults of its algorithm filled in:
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
  double reward_kl = 0;        // factor of the divergence that token rewards lose, with a critic
  bool dynamic_sampling = false;     // draws until enough groups have rewards that differ
  int64_t overlong_buffer = 0;  // the last tokens before the maximum, in which length costs
};
// REQUIRES: an algorithm with rollouts.
Objective objective_of(const config::RlConfig& config);

// Advantages of the responses to one prompt over a baseline (config::Baseline). All are 0 if the rewards are
// equal, or if there is one response, which has nothing to be compared with.
std::vector<double> advantages(std::span<const double> rewards, config::Baseline baseline);

// Whether there is something to be learnt from a group: its rewards differ (DAPO's dynamic sampling).
bool has_variance(std::span<const double> rewards);

// DAPO's soft overlong punishment (equation 13): 0 up to most − buffer tokens, then falling to −1 at `most`.
// 0 without a buffer.
double overlong_penalty(int64_t tokens, int64_t most, int64_t buffer);

// The loss weight of a token of each response of a mini-batch; `tokens`: the responses' lengths. The sum of
// weighted losses over the number of all tokens is the aggregate:
//   kToken     the mean over all tokens (DAPO, equation 12)
//   kSequence  the mean over responses of their tokens' mean (GRPO)
//   kConstant  the sum over tokens ÷ (responses × `most`), whatever lengths they have (Dr. GRPO)
std::vector<double> token_weights(std::span<const int64_t> tokens, config::LossAggMode aggregate,
                                  int64_t most);

}  // namespace sluice::rl
