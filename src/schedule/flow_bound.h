// A lower bound on a pipeline's makespan from the order of injection alone. It is cheaper than the
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
  // A bound never above the recurrence's makespan for the micro-batches `order`. Forwards are a flow shop
  // over the stages; so are input gradients on the way back, with weight gradients on the lowest stage. The
  // last stage is busy from its first cell on. A micro-batch enters once enough earlier ones have finished.
  // O(cells). REQUIRES: no micro-batch has more tokens than the credit.
  int64_t at_least_ns(const MicroBatchTable& table, std::span<const int> order, int64_t credit_tokens);
  // The same for several lanes: the largest bound of a lane's own micro-batches, which wait for other lanes
  // besides. Ends at the first lane whose bound is above `enough_ns`.
  int64_t at_least_ns(const MicroBatchTable& table, std::span<const int> order, int lanes,
                      int64_t credit_tokens, int64_t enough_ns);

 private:
  int64_t pass_stages(const MicroBatchTable& table, std::span<const int> order, int64_t credit_tokens);

  // By stage: the ends of forwards and of input gradients so far. By position in the order: each forward's
  // end and a bound on its finish.
  std::vector<int64_t> heads_ns_, returns_ns_, reached_ns_, finished_ns_;
  std::vector<int> lane_order_;
  int64_t turned_ns_ = 0;  // end of the last stage's cells, without weight gradients
};

}  // namespace sluice::schedule
