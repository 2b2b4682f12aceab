// The bounds of a pipeline's stages.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "base/interval.h"

namespace sluice::model {

// Cuts a model's operations into stages so that the slowest stage is as fast as possible (bisection on its
// time). From front to back each stage takes blocks up to its even part of the remaining time, within that
// bound. So with equal blocks and free ends the first (blocks mod stages) stages have one more block. A cut
// is made when it is first needed, then kept. Thread-safe.
class StageCuts {
 public:
  // `times` of the operations, in any unit: the embedding (first stage), the blocks, the head (last stage).
  // REQUIRES: at least three, none negative, a sum below 2^62.
  explicit StageCuts(const std::vector<int64_t>& times);

  // The operations of a stage, at least one block among them. REQUIRES: 0 <= stage < stages <= blocks.
  base::Interval of_stage(int stages, int stage) const;

 private:
  struct Cut {
    std::once_flag made;
    std::vector<int64_t> ends;  // by stage: number of blocks up to its end
  };

  int64_t blocks() const { return static_cast<int64_t>(before_.size()) - 1; }
  int64_t reach(int64_t begin, int64_t most) const;
  bool fits(int64_t begin, int stages, int64_t most) const;
  int64_t fastest_slowest(int stages) const;
  std::vector<int64_t> ends_of(int stages) const;

  // Time of a stage with the first n blocks: 0 for n = 0; includes the embedding for n >= 1, and the head for
  // all blocks.
  std::vector<int64_t> before_;
  mutable std::vector<Cut> cuts_;  // by stages − 1
};

}  // namespace sluice::model
