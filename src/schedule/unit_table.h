// What units take on every stage, in flat arrays: rows are overwritten in place while a search changes units.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/pipeline_schedule.h"

namespace sluice::schedule {

class UnitTable {
 public:
  explicit UnitTable(int stages) : stages_(stages) {}

  int stages() const { return stages_; }
  int units() const { return static_cast<int>(heads_.size()); }
  // Rows [0, units); what they hold stays, new ones are zero and lie on lane 0.
  void resize(int units);

  struct Head {
    int first_lane = 0;
    int lanes = 1;
    bool fused = false;            // backward is one cell on every stage
    int first_backward_stage = 0;  // as TimedUnit's
    int64_t tokens = 0;            // of its lanes' credit
  };
  Head& head(int unit) { return heads_[static_cast<size_t>(unit)]; }
  const Head& head(int unit) const { return heads_[static_cast<size_t>(unit)]; }

  // A stage of a unit; `transfer_ns` is that of the boundary to the next stage.
  struct Cells {
    int64_t forward_ns = 0;
    int64_t backward_input_ns = 0;
    int64_t backward_weight_ns = 0;
    int64_t transfer_ns = 0;
    int64_t all_ns() const { return forward_ns + backward_input_ns + backward_weight_ns; }
  };
  std::span<Cells> row(int unit) {
    return std::span(cells_).subspan(static_cast<size_t>(unit) * static_cast<size_t>(stages_),
                                     static_cast<size_t>(stages_));
  }
  std::span<const Cells> row(int unit) const {
    return std::span(cells_).subspan(static_cast<size_t>(unit) * static_cast<size_t>(stages_),
                                     static_cast<size_t>(stages_));
  }
  // REQUIRES: it has this table's stages.
  void append(const TimedUnit& unit);

 private:
  int stages_;
  std::vector<Head> heads_;
  std::vector<Cells> cells_;  // by unit, then stage
};

}  // namespace sluice::schedule
