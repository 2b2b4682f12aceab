// The critic of PPO predicts, for each token of a response, the reward to be expected before that token. It
// is a trunk of its own, with its own parameters, optimizer state and checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "checkpoint/background_save.h"
#include "rl/episode.h"
#include "storage/location.h"
#include "run/plan_ahead.h"
#include "run/slice_snapshot.h"
#include "run/trunk.h"

namespace sluice::run {

class Critic {
 public:
  // Collective. The run is open and outlives the critic. Throws as Trunk, and InputError if the checkpoint
  // that the run resumes from has no critic beside it.
  explicit Critic(RunContext& run);

  // Collective: for each episode, the values before each token of the response; the same on all ranks. `step`
  // is for messages.
  std::vector<std::vector<double>> values(const rl::MiniBatch& episodes, int64_t step);

  // The critic's act of a step, planned, with tokens. REQUIRES: episodes have values and returns.
  PreparedStep prepare(const rl::MiniBatch& episodes, int64_t step);
  // Collective: runs the act. `optimizer` is the policy's; the critic's rate replaces its learning rate.
  runtime::StepResult train(const PreparedStep& act, runtime::AdamW optimizer);

  const Trunk& trunk() const { return trunk_; }

  // Collective: saves the critic after so many steps, and returns when the save is committed. The policy's
  // checkpoint of the same step is saved afterwards, so each policy checkpoint has its critic.
  void save(int64_t step);

 private:
  void load(const storage::Location& policy);

  RunContext& run_;
  Trunk trunk_;
  checkpoint::BackgroundSave save_;
  SliceSnapshot snapshot_;
};

}  // namespace sluice::run
