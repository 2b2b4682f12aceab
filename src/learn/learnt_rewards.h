// Learnt rewards: the score that a reward model gives a prompt with its response.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "learn/response.h"
#include "rl/episode.h"
#include "run/run_context.h"
#include "run/trunk.h"

namespace sluice::learn {

class LearntRewards {
 public:
  // Collective, as Trunk: loads each "model:FOLDER" in rl.reward. REQUIRES: the run outlives this.
  explicit LearntRewards(run::RunContext& run);

  // Collective: adds the scores of all models to responses that all ranks have, by prompt. A score that is
  // not finite is a failed reward; with rl.on_bad_reward = "stop" it is a RunError on every rank.
  void add_to(std::span<const rl::Prompt> prompts, std::vector<std::vector<Response>>& responses);

  // The forwards of all models in the last add_to(), as one act.
  const report::ActRecord& newest() const { return newest_; }

 private:
  std::vector<double> scores(std::span<const rl::Prompt> prompts,
                             const std::vector<std::vector<Response>>& responses);

  run::RunContext& run_;
  std::vector<std::unique_ptr<run::Trunk>> models_;
  int64_t rewarded_ = 0;  // calls of add_to() so far, for people
  report::ActRecord newest_;
};

}  // namespace sluice::learn
