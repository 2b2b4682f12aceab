#include "ops/made_ahead.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>

namespace sluice::ops {
namespace {

class Maker {
 public:
  MadeAhead<int, int>::Make function() {
    return [this](const int& key) -> std::shared_ptr<int> {
      ++made;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // so that threads meet
      if (key < 0) throw std::runtime_error("no such key");
      return key == 0 ? nullptr : std::make_shared<int>(2 * key);
    };
  }
  std::atomic<int> made{0};
};

TEST(MadeAhead, EachKeyIsMadeOnce) {
  Maker maker;
  MadeAhead<int, int> things(maker.function());
  std::atomic<int> begun{0}, ended{0};
  const std::vector<int> keys{1, 2, 3, 4, 5, 0};
  things.make_all(
      keys, 4, [&] { ++begun; }, [&] { ++ended; });
  EXPECT_EQ(maker.made, 6);
  EXPECT_EQ(begun, 4);
  EXPECT_EQ(ended, 4);
  for (const int key : keys) EXPECT_TRUE(things.has(key));
  EXPECT_EQ(*things.get(3), 6);
  EXPECT_EQ(things.get(0), nullptr);
  EXPECT_FALSE(things.has(7));
  EXPECT_EQ(*things.get(7), 14);
  EXPECT_EQ(maker.made, 7);
}

TEST(MadeAhead, ThreadsThatMeetShareOne) {
  Maker maker;
  MadeAhead<int, int> things(maker.function());
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) threads.emplace_back([&] { EXPECT_EQ(*things.get(4), 8); });
  }
  EXPECT_EQ(maker.made, 1);
}

TEST(MadeAhead, AFaultStaysWithItsKey) {
  Maker maker;
  MadeAhead<int, int> things(maker.function());
  things.make_all(
      {-1, 1}, 1, [] {}, [] {});
  EXPECT_THROW(things.get(-1), std::runtime_error);
  EXPECT_EQ(*things.get(1), 2);
  EXPECT_EQ(maker.made, 2);
}

}  // namespace
}  // namespace sluice::ops
