// Entries of rl.reward that name reward models.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::config {

inline constexpr std::string_view kModelReward = "model:";

inline bool is_learnt_reward(std::string_view name) { return name.starts_with(kModelReward); }

// The folders of the reward models, in their order.
inline std::vector<std::string> learnt_rewards(std::span<const std::string> names) {
  std::vector<std::string> folders;
  for (const std::string& name : names) {
    if (is_learnt_reward(name)) folders.push_back(name.substr(kModelReward.size()));
  }
  return folders;
}

// The other entries: functions of texts (rl/reward.h).
inline std::vector<std::string> reward_functions(std::span<const std::string> names) {
  std::vector<std::string> functions;
  for (const std::string& name : names) {
    if (!is_learnt_reward(name)) functions.push_back(name);
  }
  return functions;
}

}  // namespace sluice::config
