// Which passes a scheduler makes of texts whose lengths are known, without saying them: what planning times
// (cost/decode_cost.h). Passes that go on alike are found at once, so a load takes steps by its texts, not by
// their tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cost/decode_cost.h"
#include "inference/scheduler.h"

namespace sluice::inference {

// A request by its lengths.
struct RequestLengths {
  int64_t prompt = 0;
  int64_t max_tokens = 0;            // that each text might have said
  std::vector<int64_t> output_lens;  // by each of its texts, what ended it included; at least one token each
};

struct EngineSteps {
  // In order; runs of passes alike in one, or, of several stages, runs of rounds alike in one for each pass
  // of a round. Where nothing goes through while a text's token is awaited, one without rows.
  std::vector<cost::DecodeWork> work;
  int64_t count = 0;  // with rows
  int64_t preemptions = 0;
};

// Of a Scheduler with these options that is asked for all of it at once. `window`: the model's; 0: none.
// InputError as Scheduler::add.
EngineSteps engine_steps_of(std::span<const RequestLengths> load, const SchedulerOptions& options,
                            int64_t window);

}  // namespace sluice::inference
