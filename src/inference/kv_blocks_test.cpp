#include "inference/kv_blocks.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/rng.h"

namespace sluice::inference {
namespace {

TEST(KvBlockPool, PagesOfATextLieSideBySide) {
  KvBlockPool pool(6);
  const int64_t first = pool.allocate();
  EXPECT_EQ(pool.allocate(first), first + 1);
  const int64_t other = pool.allocate();
  EXPECT_EQ(other, first + 2);
  EXPECT_EQ(pool.allocate(first + 1), first + 3);
  EXPECT_EQ(pool.num_free(), 2);
}

TEST(KvBlockPool, APageIsFreeWhenItsLastHolderGivesItBack) {
  KvBlockPool pool(1);
  const int64_t page = pool.allocate();
  pool.add_reference(page);
  EXPECT_EQ(pool.allocate(), -1);
  pool.release(page);
  EXPECT_EQ(pool.allocate(), -1);
  pool.release(page);
  EXPECT_EQ(pool.allocate(), page);
}

// Nobody gets a page that somebody holds, and none is lost.
TEST(KvBlockPool, AMillionEventsLeaveNoPageWithTwoOwnersAndLoseNone) {
  base::Rng rng(11);
  KvBlockPool pool(97);
  std::map<int64_t, int> holders;
  std::vector<int64_t> held;  // a page as often as it is held
  for (int event = 0; event < 1'000'000; ++event) {
    const uint64_t what = rng.below(100);
    if (what < 45) {
      const int64_t page = pool.allocate(held.empty() ? -1 : held[rng.below(held.size())]);
      ASSERT_EQ(page < 0, holders.size() == 97);
      if (page < 0) continue;
      ASSERT_EQ(holders.count(page), 0U);
      holders[page] = 1;
      held.push_back(page);
    } else if (!held.empty()) {
      const size_t which = rng.below(held.size());
      const int64_t page = held[which];
      if (what < 55) {
        pool.add_reference(page);
        ++holders[page];
        held.push_back(page);
      } else {
        pool.release(page);
        if (--holders[page] == 0) holders.erase(page);
        held[which] = held.back();
        held.pop_back();
      }
    }
    ASSERT_EQ(pool.num_free(), 97 - static_cast<int64_t>(holders.size()));
  }
}

}  // namespace
}  // namespace sluice::inference
