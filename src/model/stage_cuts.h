// Where the stages of a pipeline begin and end.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "base/interval.h"

namespace sluice::model {

// Cuts the operations of a model into stages. The slowest stage is as fast as in any cut; front to back each
// stage takes blocks until it has its even part of the time that is left, as far as that allows it. So of
// alike blocks, between ends that take nothing, the first (blocks mod stages) stages have one more. A cut is
// made when it is first asked for, and kept. Thread-safe.
class StageCuts {
 public:
  // What each operation takes, in any unit: the embedding, which is on the first stage, the blocks, and the
  // head, which is on the last. REQUIRES: at least three, none negative, a sum below 2^62.
  explicit StageCuts(const std::vector<int64_t>& times);

  // The operations of a stage, at least one block among them. REQUIRES: 0 <= stage < stages <= blocks.
  base::Interval of_stage(int stages, int stage) const;

 private:
  struct Cut {
    std::once_flag made;
    std::vector<int64_t> ends;  // by stage, how many blocks it and those before it have
  };

  int64_t blocks() const { return static_cast<int64_t>(before_.size()) - 1; }
  int64_t reach(int64_t begin, int64_t most) const;
  bool fits(int64_t begin, int stages, int64_t most) const;
  int64_t fastest_slowest(int stages) const;
  std::vector<int64_t> ends_of(int stages) const;

  // What a stage of the first n blocks takes: none for 0, with the embedding from 1 on, with the head for
  // all.
  std::vector<int64_t> before_;
  mutable std::vector<Cut> cuts_;  // by stages − 1
};

}  // namespace sluice::model
