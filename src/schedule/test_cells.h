// Random cells for tests that compare two implementations of the recurrence.
#pragma once

#include <algorithm>
#include <array>

#include "base/rng.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::schedule {

struct CellRange {
  int64_t least_ns = 0;
  int64_t most_ns = 0;
  int64_t most_transfer_ns = 0;
};

// Draws no, short or long transfers, and sometimes short cells or cells that take no time.
inline CellRange draw_range(base::Rng& rng) {
  const int64_t least_ns = rng.below(4) == 0 ? 0 : 1;
  const int64_t most_ns = rng.below(3) == 0 ? 3 : 50;
  return {least_ns, most_ns, std::array<int64_t, 3>{0, 5, 80}[static_cast<size_t>(rng.below(3))]};
}

// Gives the micro-batch a cell of each kind on every stage, and the transfers between them.
inline void draw_cells(base::Rng& rng, int stages, const CellRange& range, TimedMicroBatch& micro_batch) {
  for (int stage = 0; stage < stages; ++stage) {
    micro_batch.forward_ns.push_back(rng.between(range.least_ns, range.most_ns));
    micro_batch.backward_input_ns.push_back(rng.between(range.least_ns, range.most_ns));
    micro_batch.backward_weight_ns.push_back(rng.between(range.least_ns, range.most_ns));
    if (stage > 0) micro_batch.transfer_ns.push_back(rng.between(0, range.most_transfer_ns));
  }
}

// Removes the backwards of all micro-batches below a stage, or on all stages.
inline void end_backwards(int first_backward_stage, PipelineLoad& load) {
  for (TimedMicroBatch& micro_batch : load.micro_batches) {
    micro_batch.first_backward_stage = first_backward_stage;
    std::fill_n(micro_batch.backward_input_ns.begin(), first_backward_stage, 0);
    std::fill_n(micro_batch.backward_weight_ns.begin(), first_backward_stage, 0);
  }
}

}  // namespace sluice::schedule
