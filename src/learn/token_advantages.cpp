#include "learn/token_advantages.h"

#include <utility>
#include <vector>

#include "rl/advantage.h"

namespace sluice::learn {

report::ActRecord find_token_advantages(run::Critic& critic, const config::RlConfig& config,
                                        const rl::Objective& objective, int64_t step,
                                        std::deque<rl::MiniBatch>& batches) {
  report::ActRecord act{.name = "values"};
  std::vector<std::vector<double>*> advantages;
  for (rl::MiniBatch& batch : batches) {
    std::vector<std::vector<double>> values = critic.values(batch, step);
    report::add(critic.trunk().newest(), act);
    for (size_t i = 0; i < batch.size(); ++i) {
      rl::Episode& episode = batch[i];
      episode.values = std::move(values[i]);
      const std::vector<double> rewards =
          rl::token_rewards(episode.reward, episode.old_log_probs, episode.ref_log_probs,
                            episode.values.size(), objective.reward_kl);
      rl::TokenAdvantages found =
          rl::generalised_advantages(rewards, episode.values, config.gamma, config.gae_lambda);
      episode.advantages = std::move(found.advantages);
      episode.returns = std::move(found.returns);
      advantages.push_back(&episode.advantages);
    }
  }
  rl::whiten(advantages);
  return act;
}

}  // namespace sluice::learn
