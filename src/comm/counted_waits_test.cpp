#include "comm/counted_waits.h"

#include <gtest/gtest.h>

#include <thread>

#include "comm/fake.h"

namespace sluice::comm {
namespace {

TEST(CountedWaits, OperationsAreTheSameAndTheirWaitsAreCounted) {
  FakeWorld world(2);
  const auto clock = std::make_shared<WaitClock>();
  int64_t sum = 0;
  std::thread other([&] {
    const auto transport = world.transport(1);
    const auto group = transport->communicator("group", {0, 1});
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const int64_t own[] = {3, 4};
    int64_t all[4];
    group->all_gather(own, all, sizeof own)->wait();
  });
  {
    const auto transport = world.transport(0);
    const auto group = counting_waits(transport->communicator("group", {0, 1}), clock);
    EXPECT_EQ(group->name(), "group");
    EXPECT_EQ(group->rank(), 0);
    const int64_t own[] = {1, 2};
    int64_t all[4];
    group->all_gather(own, all, sizeof own)->wait();
    for (const int64_t value : all) sum += value;
  }
  other.join();
  EXPECT_EQ(sum, 10);
  EXPECT_GE(clock->waited_ns, 10'000'000);  // the other came later
  EXPECT_EQ(counting_waits(nullptr, clock), nullptr);
}

}  // namespace
}  // namespace sluice::comm
