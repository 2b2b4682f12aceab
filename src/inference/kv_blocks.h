// Blocks of a KV cache (layers/kv_cache.h): its rows in blocks of kKvBlockTokens, so that sequences grow
// without moving. Sequences with the same beginning may share blocks, which are counted. The pool is
// deterministic: blocks follow from the order of allocations and releases.
#pragma once

#include <cstdint>
#include <vector>

#include "base/interval.h"

namespace sluice::inference {

inline constexpr int64_t kKvBlockTokens = 32;
inline int64_t kv_blocks_for(int64_t tokens) { return (tokens + kKvBlockTokens - 1) / kKvBlockTokens; }

// The cache's rows of a sequence's tokens [begin, end) in the sequence's blocks, as runs of consecutive rows.
std::vector<base::Interval> rows_of(const std::vector<int64_t>& kv_blocks, int64_t begin, int64_t end);

class KvBlockPool {
 public:
  // REQUIRES: blocks >= 0.
  explicit KvBlockPool(int64_t blocks);

  // Takes a free block, with one reference from now on; −1: none is free. Prefers the block
  // after the sequence's `last` block, because consecutive rows are read up to twice as
  // fast. A sequence's first block begins a run of `most` free blocks if such a run exists.
  int64_t allocate(int64_t last = -1, int64_t most = 1);
  // REQUIRES for both: the block has a reference.
  void add_reference(int64_t block);
  void release(int64_t block);

  int64_t size() const { return static_cast<int64_t>(references_.size()); }
  int64_t num_free() const { return free_; }

 private:
  int64_t first_of_run(int64_t blocks) const;

  std::vector<int32_t> references_;  // by block
  int64_t next_ = 0;                 // the search for a free block begins here
  int64_t free_ = 0;
};

}  // namespace sluice::inference
