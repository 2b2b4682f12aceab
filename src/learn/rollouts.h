// Training steps on the model's own responses: prompts are drawn, answered and rewarded, and the responses
// are trained on in a few updates. The loop of generation, preparation and training is HybridFlow's (Sheng et
// al., 2025), on one engine.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "corpus/sampler.h"
#include "learn/rollout_generator.h"
#include "rl/episode.h"
#include "rl/objective.h"
#include "run/plan_ahead.h"
#include "run/critic.h"
#include "run/run_context.h"

namespace sluice::learn {

// All ranks draw, generate, reward and prepare alike, whatever the layouts of rollout and updates. The
// training data is therefore a function of seed, parameters and step.
class Rollouts final : public run::StepSource {
 public:
  // REQUIRES: the run is open; run and generator outlive this.
  // `critic`: for ppo; else null.
  Rollouts(run::RunContext& run, RolloutGenerator& generator, run::Critic* critic);

  // Collective; called by the thread that runs steps, because a rollout uses the engine.
  std::unique_ptr<run::PreparedStep> next() override;

 private:
  struct Group {
    rl::Prompt question;
    std::vector<Response> responses;
  };
  void roll_out();
  std::vector<Group> draw();
  // Counts the responses whose reward failed, and drops them if rl.on_bad_reward says so.
  void settle(std::vector<Group>& groups);
  void keep(std::vector<Group>& drawn, std::vector<Group>& kept);
  void shape(std::vector<Group>& groups);
  void find_reference();
  void describe(const std::vector<Group>& drawn);
  std::vector<report::Completion> examples_of(const std::vector<Group>& groups) const;
  std::vector<rl::Episode> episodes_of(const Group& group) const;

  run::RunContext& run_;
  RolloutGenerator& generator_;
  run::Critic* critic_;
  const config::RlConfig& config_;
  const rl::Objective objective_;
  const corpus::Blend& blend_;
  corpus::Sampler prompts_;
  std::deque<rl::MiniBatch> batches_;  // from the rollout, not trained on yet
  report::StepRecord told_;            // the rollout's figures, reported by its first step
  int64_t step_;                       // the next one's number
};

}  // namespace sluice::learn
