// Rewards that were learnt: the score that a reward model gives a prompt with its response.
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
  // Collective, as Trunk: of each "model:FOLDER" in rl.reward. The run outlives it.
  explicit LearntRewards(run::RunContext& run);

  // Collective: adds the scores of all models to responses that all ranks have, by prompt. A score that is no
  // finite number is a reward that failed: with rl.on_bad_reward = "stop" a RunError on every rank.
  void add_to(std::span<const rl::Prompt> prompts, std::vector<std::vector<Response>>& responses);

  // All models' forwards over those, as one act.
  const report::ActRecord& newest() const { return newest_; }

 private:
  std::vector<double> scores(std::span<const rl::Prompt> prompts,
                             const std::vector<std::vector<Response>>& responses);

  run::RunContext& run_;
  std::vector<std::unique_ptr<run::Trunk>> models_;
  int64_t rewarded_ = 0;  // times that responses were, for people
  report::ActRecord newest_;
};

}  // namespace sluice::learn
