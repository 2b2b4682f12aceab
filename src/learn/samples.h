// Continuations that the model generates during training, for people to read in the log.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "learn/rollout_generator.h"
#include "run/run_context.h"

namespace sluice::learn {

class Samples {
 public:
  // REQUIRES: the run is open; run and generator outlive this.
  Samples(run::RunContext& run, RolloutGenerator& generator);

  bool due(int64_t steps_done, bool last) const;
  // Collective: logs the likeliest continuations.
  void log(int64_t after_step);

 private:
  run::RunContext& run_;
  RolloutGenerator& generator_;
  std::vector<std::vector<int32_t>> prompts_;
};

}  // namespace sluice::learn
