#include "model/stage_cuts.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace sluice::model {

StageCuts::StageCuts(const std::vector<int64_t>& times) : before_{0}, cuts_(times.size() - 2) {
  SLUICE_ASSERT(times.size() > 2, "no block to cut");
  int64_t total = times.front();
  for (size_t position = 1; position + 1 < times.size(); ++position)
    before_.push_back(total += times[position]);
  before_.back() += times.back();
}

base::Interval StageCuts::of_stage(int stages, int stage) const {
  SLUICE_ASSERT(stage >= 0 && stage < stages && stages <= blocks(),
                base::text("stage ", stage, " of ", stages, " in ", blocks(), " blocks"));
  Cut& cut = cuts_[static_cast<size_t>(stages - 1)];
  std::call_once(cut.made, [&] { cut.ends = ends_of(stages); });
  const auto end_of = [&](int of) { return cut.ends[static_cast<size_t>(of)]; };
  // Blocks are the operations from 1 on.
  const bool first = stage == 0, last = stage + 1 == stages;
  return {first ? 0 : 1 + end_of(stage - 1), 1 + end_of(stage) + (last ? 1 : 0)};
}

// The last block to which a stage from `begin` on takes no longer than `most`.
int64_t StageCuts::reach(int64_t begin, int64_t most) const {
  const auto beyond =
      std::upper_bound(before_.begin() + begin, before_.end(), before_[static_cast<size_t>(begin)] + most);
  return beyond - before_.begin() - 1;
}

// Whether the blocks from `begin` on fit into `stages` stages of at most `most` each. Greedy: each takes as
// many blocks as it can.
bool StageCuts::fits(int64_t begin, int stages, int64_t most) const {
  for (int left = stages - 1; left >= 0; --left) {
    const int64_t end = std::min(reach(begin, most), blocks() - left);
    if (end <= begin) return false;
    begin = end;
  }
  return begin == blocks();
}

int64_t StageCuts::fastest_slowest(int stages) const {
  int64_t least = 0, most = before_.back();
  while (least < most) {
    const int64_t middle = least + (most - least) / 2;
    if (fits(0, stages, middle)) {
      most = middle;
    } else {
      least = middle + 1;
    }
  }
  return least;
}

std::vector<int64_t> StageCuts::ends_of(int stages) const {
  const int64_t most = fastest_slowest(stages);
  std::vector<int64_t> ends;
  int64_t begin = 0;
  for (int left = stages - 1; left >= 0; --left) {
    const int64_t before = before_[static_cast<size_t>(begin)];
    const int64_t even = before + (before_.back() - before + left) / (left + 1);
    const auto reached = std::lower_bound(before_.begin() + begin + 1, before_.end(), even);
    int64_t end = std::min({reached - before_.begin(), reach(begin, most), blocks() - left});
    while (!fits(end, left, most)) ++end;
    ends.push_back(begin = end);
  }
  return ends;
}

}  // namespace sluice::model
