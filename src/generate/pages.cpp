#include "generate/pages.h"

#include "base/error.h"
#include "base/text.h"

namespace sluice::generate {

PagePool::PagePool(int64_t pages) : holders_(static_cast<size_t>(pages), 0), free_(pages) {}

int64_t PagePool::take(int64_t last) {
  if (free_ == 0) return -1;
  const int64_t behind = last + 1;
  const bool follows = last >= 0 && behind < size() && holders_[static_cast<size_t>(behind)] == 0;
  int64_t page = follows ? behind : next_;
  while (holders_[static_cast<size_t>(page)] > 0) page = (page + 1) % size();
  if (!follows) next_ = (page + 1) % size();
  holders_[static_cast<size_t>(page)] = 1;
  --free_;
  return page;
}

void PagePool::share(int64_t page) {
  SLUICE_ASSERT(holders_[static_cast<size_t>(page)] > 0, base::text("nobody holds page ", page));
  ++holders_[static_cast<size_t>(page)];
}

void PagePool::give_back(int64_t page) {
  SLUICE_ASSERT(holders_[static_cast<size_t>(page)] > 0, base::text("nobody holds page ", page));
  if (--holders_[static_cast<size_t>(page)] == 0) ++free_;
}

}  // namespace sluice::generate
