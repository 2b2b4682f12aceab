// Advantages over a critic's values, against the formula of generalised advantage estimation.
#include "learn/token_advantages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "learn/test_small_run.h"

namespace sluice::learn {
namespace {

class CriticRuns : public SmallRuns {
 protected:
  CriticRuns() { write("corpus", {{"q1=", "7"}, {"q2=", "14 a b"}}); }

  // Responses of three, one and two tokens, in two mini-batches.
  static std::deque<rl::MiniBatch> batches() {
    std::deque<rl::MiniBatch> made(2);
    const auto add = [&](size_t batch, const std::string& prompt, const std::string& response,
                         double reward) {
      rl::Episode& episode = made[batch].emplace_back();
      episode.tokens = ids(prompt);
      episode.prompt_tokens = std::ssize(episode.tokens);
      for (const int32_t token : ids(response)) episode.tokens.push_back(token);
      episode.reward = reward;
      for (int64_t i = 0; i < episode.response_tokens(); ++i) {
        episode.old_log_probs.push_back(-1 - 0.5 * static_cast<double>(i));
        episode.ref_log_probs.push_back(-1.25);
      }
    };
    add(0, "q1=", "abc", 1);
    add(0, "q1=", "b", 0);
    add(1, "q2=", "ab", 0.5);
    return made;
  }
  // Σ (γλ)^k δ by its definition, token by token.
  static double advantage(const std::vector<double>& rewards, const std::vector<double>& values, size_t at,
                          double gamma, double lambda) {
    double sum = 0;
    for (size_t t = at; t < rewards.size(); ++t) {
      const double next = t + 1 < values.size() ? values[t + 1] : 0;
      sum += std::pow(gamma * lambda, static_cast<double>(t - at)) * (rewards[t] + gamma * next - values[t]);
    }
    return sum;
  }
};

TEST_F(CriticRuns, AdvantagesAreGaeOverTheCriticsValuesAndWhitenedOverTheWholeRollout) {
  constexpr double kGamma = 0.9, kLambda = 0.8, kKl = 0.1;
  OpenRun run(config({"rl.algorithm=ppo", "rl.gamma=0.9", "rl.gae_lambda=0.8", "rl.kl=0.1"}));
  run::Critic critic(*run);
  std::deque<rl::MiniBatch> found = batches();
  const rl::Objective objective = rl::objective_of(run->config().rl);
  const report::ActRecord act = find_token_advantages(critic, run->config().rl, objective, 0, found);
  EXPECT_EQ(act.name, "values");
  EXPECT_GT(act.time_ns, 0);
  std::vector<double> expected, whitened;
  for (const rl::MiniBatch& batch : found) {
    const std::vector<std::vector<double>> values = critic.values(batch, 0);
    for (size_t i = 0; i < batch.size(); ++i) {
      const rl::Episode& episode = batch[i];
      ASSERT_EQ(episode.values, values[i]);
      std::vector<double> rewards;
      for (size_t t = 0; t < episode.values.size(); ++t)
        rewards.push_back(-kKl * (episode.old_log_probs[t] - episode.ref_log_probs[t]));
      rewards.back() += episode.reward;
      for (size_t t = 0; t < rewards.size(); ++t) {
        expected.push_back(advantage(rewards, episode.values, t, kGamma, kLambda));
        EXPECT_NEAR(episode.returns[t], expected.back() + episode.values[t], 1e-12);
        whitened.push_back(episode.advantages[t]);
      }
    }
  }
  ASSERT_EQ(expected.size(), 6U);
  double mean = 0, squares = 0;
  for (const double value : expected) mean += value / 6;
  for (const double value : expected) squares += (value - mean) * (value - mean) / 5;
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(whitened[i], (expected[i] - mean) / std::sqrt(squares), 1e-6);
}

// The critic's step lowers the distance of its values to the returns.
TEST_F(CriticRuns, TheCriticLearnsTheReturns) {
  OpenRun run(config({"rl.algorithm=ppo", "rl.value_clip=0", "rl.critic_lr=0.01"}));
  run::Critic critic(*run);
  std::deque<rl::MiniBatch> rollout = batches();
  find_token_advantages(critic, run->config().rl, rl::objective_of(run->config().rl), 0, rollout);
  const auto distance = [&] {
    double sum = 0;
    const std::vector<std::vector<double>> values = critic.values(rollout[0], 0);
    for (size_t i = 0; i < values.size(); ++i) {
      for (size_t t = 0; t < values[i].size(); ++t)
        sum += std::pow(values[i][t] - rollout[0][i].returns[t], 2);
    }
    return sum;
  };
  const double before = distance();
  runtime::AdamW adam{.lr = 1e-2};
  for (int step = 0; step < 5; ++step, ++adam.update) critic.train(critic.prepare(rollout[0], step), adam);
  EXPECT_LT(distance(), 0.7 * before);
}

}  // namespace
}  // namespace sluice::learn
