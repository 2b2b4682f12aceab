// Simulates the engine steps that a scheduler makes of requests with known lengths, without
// a model, so that planning can price them (cost/decode_cost.h). Equal consecutive steps are
// found at once, so the simulation's time grows with the number of sequences, not of tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cost/decode_cost.h"
#include "inference/scheduler.h"

namespace sluice::inference {

// A request by its lengths, in tokens.
struct RequestLengths {
  int64_t prompt = 0;
  int64_t max_tokens = 0;            // limit of each sample
  std::vector<int64_t> output_lens;  // tokens that each sample generates, with its end token; at least one
};

struct EngineSteps {
  // In order. Equal consecutive steps are one entry; with several stages, equal rounds are one entry for each
  // step of a round. A step without rows stands where nothing can be computed while a token is awaited.
  std::vector<cost::DecodeWork> work;
  int64_t count = 0;  // steps with rows
  int64_t preemptions = 0;
};

// Steps of a Scheduler with these options that gets all requests at once. `window`: the model's, in tokens;
// 0: none. InputError as Scheduler::add.
EngineSteps engine_steps_of(std::span<const RequestLengths> load, const SchedulerOptions& options,
                            int64_t window);

}  // namespace sluice::inference
