// What the order of injection alone asks of a pipeline of one lane: a bound that is cheaper than the
// recurrence.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/micro_batch_table.h"

namespace sluice::schedule {

// A workspace; one thread at a time. Deterministic.
class FlowBound {
 public:
  // Never above what the recurrence finds for the micro-batches `order`: forwards pass the stages like jobs a
  // flow shop, so do input gradients on the way back, with weight gradients on stage 0, and the last stage is
  // busy from its first cell on; a micro-batch enters when enough of those before it have finished. O(cells).
  // REQUIRES: no micro-batch has more tokens than the credit.
  int64_t at_least_ns(const MicroBatchTable& table, std::span<const int> order, int64_t credit_tokens);

 private:
  int64_t pass_stages(const MicroBatchTable& table, std::span<const int> order, int64_t credit_tokens);

  // By stage the forwards and the input gradients so far, by place in the order the forward's end and a
  // finish.
  std::vector<int64_t> heads_ns_, returns_ns_, reached_ns_, finished_ns_;
  int64_t turned_ns_ = 0;  // the last stage, weight gradients apart
};

}  // namespace sluice::schedule
