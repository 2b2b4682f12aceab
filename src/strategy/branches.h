// Splits a piece at a sequence's prefix and branches.
#pragma once

#include <cstdint>

#include "base/interval.h"
#include "strategy/step_plan.h"

namespace sluice::strategy {

// Calls visit(branch, tokens) for each part of the piece in order. Branch -1 is the prefix, which is the
// whole of a sequence without branches. A branch's tokens are counted as if it followed the prefix at once.
template <typename Visit>
void for_each_part(const Sequence& sequence, const Piece& scheduled, const Visit& visit) {
  const base::Interval rows{scheduled.begin, scheduled.end};
  const int64_t prefix = sequence.prefix_tokens();
  const base::Interval of_prefix = base::intersect(rows, {0, prefix});
  if (!of_prefix.empty()) visit(-1, of_prefix);
  int64_t begin = prefix;
  int branch = 0;
  for (const int64_t length : sequence.branches) {
    const base::Interval own = base::intersect(rows, {begin, begin + length});
    if (!own.empty()) visit(branch, base::Interval{prefix + own.begin - begin, prefix + own.end - begin});
    begin += length;
    ++branch;
  }
}

}  // namespace sluice::strategy
