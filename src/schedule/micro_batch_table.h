// Durations of micro-batches' cells on every stage, in flat arrays. A search overwrites rows in place while
// it changes micro-batches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/pipeline_schedule.h"

namespace sluice::schedule {

class MicroBatchTable {
 public:
  explicit MicroBatchTable(int stages) : stages_(stages) {}

  int stages() const { return stages_; }
  int micro_batches() const { return static_cast<int>(heads_.size()); }
  // Rows [0, micro_batches); existing rows keep their content, new ones are zero and lie on lane 0.
  void resize(int micro_batches);

  struct Head {
    int first_lane = 0;
    int lanes = 1;
    bool fused = false;            // the backward is one cell on every stage
    int first_backward_stage = 0;  // as in TimedMicroBatch
    int64_t tokens = 0;            // taken of its lanes' credit
  };
  Head& head(int micro_batch) { return heads_[static_cast<size_t>(micro_batch)]; }
  const Head& head(int micro_batch) const { return heads_[static_cast<size_t>(micro_batch)]; }

  // Cells of a micro-batch on one stage; `transfer_ns` is for the boundary to the next stage.
  struct Cells {
    int64_t forward_ns = 0;
    int64_t backward_input_ns = 0;
    int64_t backward_weight_ns = 0;
    int64_t transfer_ns = 0;
    int64_t all_ns() const { return forward_ns + backward_input_ns + backward_weight_ns; }
  };
  std::span<Cells> row(int micro_batch) {
    return std::span(cells_).subspan(static_cast<size_t>(micro_batch) * static_cast<size_t>(stages_),
                                     static_cast<size_t>(stages_));
  }
  std::span<const Cells> row(int micro_batch) const {
    return std::span(cells_).subspan(static_cast<size_t>(micro_batch) * static_cast<size_t>(stages_),
                                     static_cast<size_t>(stages_));
  }
  // REQUIRES: it has as many stages as the table.
  void append(const TimedMicroBatch& micro_batch);

 private:
  int stages_;
  std::vector<Head> heads_;
  std::vector<Cells> cells_;  // by micro-batch, then stage
};

}  // namespace sluice::schedule
