// The critic of PPO: a trunk of its own, with parameters, optimizer state and checkpoints of its own, that says of
// each token of a response what reward is to be expected before it.
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
  // Collective. The run is open and outlives it. Throws as Trunk, and InputError where the checkpoint that the run
  // goes on from has no critic beside it.
  explicit Critic(RunContext& run);

  // Collective: of each episode what it expects before each token of the response, the same on all ranks.
  // `step` names it, for people.
  std::vector<std::vector<double>> values(const rl::MiniBatch& episodes, int64_t step);

  // Its act of a step, planned, with tokens. REQUIRES: episodes have values and returns.
  PreparedStep prepare(const rl::MiniBatch& episodes, int64_t step);
  // Collective: runs it. `optimizer` is the policy's, whose rate is replaced.
  runtime::StepResult train(const PreparedStep& act, runtime::AdamW optimizer);

  const Trunk& trunk() const { return trunk_; }

  // Collective: writes what it has come to after so many steps, and returns when that is committed. The policy's
  // checkpoint of the same step follows, so each of those has its critic.
  void save(int64_t step);

 private:
  void load(const storage::Location& policy);

  RunContext& run_;
  Trunk trunk_;
  checkpoint::BackgroundSave save_;
  SliceSnapshot snapshot_;
};

}  // namespace sluice::run
