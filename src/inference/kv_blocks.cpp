#include "inference/kv_blocks.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace sluice::inference {

std::vector<base::Interval> rows_of(const std::vector<int64_t>& pages, int64_t begin, int64_t end) {
  std::vector<base::Interval> runs;
  for (int64_t token = begin; token < end;) {
    const int64_t in_page = token % kKvBlockTokens;
    const int64_t row = pages[static_cast<size_t>(token / kKvBlockTokens)] * kKvBlockTokens + in_page;
    const int64_t rows = std::min(kKvBlockTokens - in_page, end - token);
    if (!runs.empty() && runs.back().end == row) {
      runs.back().end += rows;
    } else {
      runs.push_back({row, row + rows});
    }
    token += rows;
  }
  return runs;
}

KvBlockPool::KvBlockPool(int64_t pages) : holders_(static_cast<size_t>(pages), 0), free_(pages) {}

// From next_ on, once round; where no run is so long the first free page.
int64_t KvBlockPool::first_of_run(int64_t pages) const {
  int64_t begin = next_, any = -1;
  for (int64_t seen = 0, at = next_; seen < size(); ++seen) {
    if (at == 0) begin = 0;  // runs don't go round
    const bool held = holders_[static_cast<size_t>(at)] > 0;
    if (!held && any < 0) any = at;
    if (!held && at - begin + 1 >= pages) return begin;
    if (held) begin = at + 1;
    at = (at + 1) % size();
  }
  return any;
}

int64_t KvBlockPool::allocate(int64_t last, int64_t most) {
  if (free_ == 0) return -1;
  const int64_t behind = last + 1;
  const bool follows = last >= 0 && behind < size() && holders_[static_cast<size_t>(behind)] == 0;
  const int64_t page = follows ? behind : first_of_run(last < 0 ? most : 1);
  if (!follows) next_ = (page + (last < 0 ? most : 1)) % size();
  holders_[static_cast<size_t>(page)] = 1;
  --free_;
  return page;
}

void KvBlockPool::add_reference(int64_t page) {
  SLUICE_ASSERT(holders_[static_cast<size_t>(page)] > 0, base::text("nobody holds page ", page));
  ++holders_[static_cast<size_t>(page)];
}

void KvBlockPool::release(int64_t page) {
  SLUICE_ASSERT(holders_[static_cast<size_t>(page)] > 0, base::text("nobody holds page ", page));
  if (--holders_[static_cast<size_t>(page)] == 0) ++free_;
}

}  // namespace sluice::inference
