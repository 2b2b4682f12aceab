#include "inference/kv_blocks.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace sluice::inference {

std::vector<base::Interval> rows_of(const std::vector<int64_t>& kv_blocks, int64_t begin, int64_t end) {
  std::vector<base::Interval> runs;
  for (int64_t token = begin; token < end;) {
    const int64_t in_block = token % kKvBlockTokens;
    const int64_t row = kv_blocks[static_cast<size_t>(token / kKvBlockTokens)] * kKvBlockTokens + in_block;
    const int64_t rows = std::min(kKvBlockTokens - in_block, end - token);
    if (!runs.empty() && runs.back().end == row) {
      runs.back().end += rows;
    } else {
      runs.push_back({row, row + rows});
    }
    token += rows;
  }
  return runs;
}

KvBlockPool::KvBlockPool(int64_t blocks) : references_(static_cast<size_t>(blocks), 0), free_(blocks) {}

// Next fit: the first free run of so many blocks from next_
// on, once around. Without such a run: the first free block.
int64_t KvBlockPool::first_of_run(int64_t blocks) const {
  int64_t begin = next_, any = -1;
  for (int64_t seen = 0, at = next_; seen < size(); ++seen) {
    if (at == 0) begin = 0;  // no run wraps around
    const bool held = references_[static_cast<size_t>(at)] > 0;
    if (!held && any < 0) any = at;
    if (!held && at - begin + 1 >= blocks) return begin;
    if (held) begin = at + 1;
    at = (at + 1) % size();
  }
  return any;
}

int64_t KvBlockPool::allocate(int64_t last, int64_t most) {
  if (free_ == 0) return -1;
  const int64_t behind = last + 1;
  const bool follows = last >= 0 && behind < size() && references_[static_cast<size_t>(behind)] == 0;
  const int64_t block = follows ? behind : first_of_run(last < 0 ? most : 1);
  if (!follows) next_ = (block + (last < 0 ? most : 1)) % size();
  references_[static_cast<size_t>(block)] = 1;
  --free_;
  return block;
}

void KvBlockPool::add_reference(int64_t block) {
  SLUICE_ASSERT(references_[static_cast<size_t>(block)] > 0, base::text("no sequence holds block ", block));
  ++references_[static_cast<size_t>(block)];
}

void KvBlockPool::release(int64_t block) {
  SLUICE_ASSERT(references_[static_cast<size_t>(block)] > 0, base::text("no sequence holds block ", block));
  if (--references_[static_cast<size_t>(block)] == 0) ++free_;
}

}  // namespace sluice::inference
