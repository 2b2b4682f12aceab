#include "schedule/micro_batch_table.h"

#include "base/error.h"
#include "base/text.h"

namespace sluice::schedule {

void MicroBatchTable::resize(int micro_batches) {
  heads_.resize(static_cast<size_t>(micro_batches));
  cells_.resize(static_cast<size_t>(micro_batches) * static_cast<size_t>(stages_));
}

void MicroBatchTable::append(const TimedMicroBatch& micro_batch) {
  SLUICE_ASSERT(micro_batch.forward_ns.size() == static_cast<size_t>(stages_),
                base::text("a micro-batch of ", micro_batch.forward_ns.size(), " stages"));
  resize(micro_batches() + 1);
  head(micro_batches() - 1) = {micro_batch.first_lane, micro_batch.lanes, micro_batch.fused,
                               micro_batch.first_backward_stage, micro_batch.credit()};
  const std::span<Cells> cells = row(micro_batches() - 1);
  for (size_t s = 0; s < cells.size(); ++s) {
    cells[s] = {micro_batch.forward_ns[s], micro_batch.backward_input_ns[s],
                micro_batch.backward_weight_ns[s], s + 1 < cells.size() ? micro_batch.transfer_ns[s] : 0};
  }
}

}  // namespace sluice::schedule
