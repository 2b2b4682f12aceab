// What the model says while it is being trained, for people to read in the log.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/run_context.h"
#include "train/speaker.h"

namespace sluice::train {

class Samples {
 public:
  // The run is open; both outlive it.
  Samples(RunContext& run, Speaker& speaker);

  bool due(int64_t steps_done, bool last) const;
  // Collective: the likeliest continuations.
  void tell(int64_t after_step);

 private:
  RunContext& run_;
  Speaker& speaker_;
  std::vector<std::vector<int32_t>> prompts_;
};

}  // namespace sluice::train
