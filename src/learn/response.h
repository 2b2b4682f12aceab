// A rollout's response to a prompt.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice::learn {

// A response and its reward.
struct Response {
  std::vector<int32_t> tokens;  // with its end token, if it ended
  std::vector<double> log_probabilities;
  bool finish_reason = false;
  double reward = 0;
  double learnt_reward = 0;  // part of it that reward models gave
  bool faulty = false;       // its reward failed, and is 0 (rl.on_bad_reward)
};

}  // namespace sluice::learn
