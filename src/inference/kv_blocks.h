// Who holds which pages of a key cache (layers/kv_cache.h): rows of it in pages of kKvBlockTokens, so that
// texts grow without moving. A page may be held by several texts that begin alike. Deterministic: pages are a
// function of what was taken and given back, in that order.
#pragma once

#include <cstdint>
#include <vector>

#include "base/interval.h"

namespace sluice::inference {

inline constexpr int64_t kKvBlockTokens = 32;
inline int64_t kv_blocks_for(int64_t tokens) { return (tokens + kKvBlockTokens - 1) / kKvBlockTokens; }

// The cache's rows of a text's tokens [begin, end), whose pages these are; pages that lie side by side are
// one run.
std::vector<base::Interval> rows_of(const std::vector<int64_t>& pages, int64_t begin, int64_t end);

class KvBlockPool {
 public:
  // REQUIRES: pages >= 0.
  explicit KvBlockPool(int64_t pages);

  // A page nobody holds, now held once; −1: there is none. The one behind `last` where that is free, so that
  // a text's pages lie side by side: rows in one run are read up to twice as fast. Of a text that has none,
  // and may come to have `most`, one with so many free ones behind it where there is such.
  int64_t allocate(int64_t last = -1, int64_t most = 1);
  // REQUIRES of both: the page is held.
  void add_reference(int64_t page);
  void release(int64_t page);

  int64_t size() const { return static_cast<int64_t>(holders_.size()); }
  int64_t num_free() const { return free_; }

 private:
  int64_t first_of_run(int64_t pages) const;

  std::vector<int32_t> holders_;  // by page
  int64_t next_ = 0;              // where looking for a free one begins
  int64_t free_ = 0;
};

}  // namespace sluice::inference
