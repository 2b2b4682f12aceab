#include "comm/counted_waits.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>

#include "comm/test_fake.h"

namespace sluice::comm {
namespace {

// An operation that waits for member 1.
class Awaiting final : public Pending {
 public:
  void wait() override { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }
  int awaited_peer() const override { return 1; }
};
class AwaitingCommunicator final : public Communicator {
 public:
  AwaitingCommunicator() : Communicator("awaiting", {2, 5}, 0) {}
  PendingPtr all_gather(const void*, void*, int64_t) override { return std::make_unique<Awaiting>(); }
  PendingPtr all_to_all(const void*, std::span<const int64_t>, void*, std::span<const int64_t>) override {
    return std::make_unique<Awaiting>();
  }
  PendingPtr reduce_scatter(const void*, void*, int64_t, DType) override {
    return std::make_unique<Awaiting>();
  }
  PendingPtr exchange(std::span<const Message>) override { return std::make_unique<Awaiting>(); }
};

TEST(CountedWaits, StandOnTheRankThatIsWaitedFor) {
  const auto clock = std::make_shared<WaitClock>();
  const auto group = counting_waits(std::make_unique<AwaitingCommunicator>(), clock);
  group->exchange({})->wait();
  group->reduce_scatter(nullptr, nullptr, 0, DType::kFloat32)->wait();
  EXPECT_EQ(clock->awaited_rank, 5);
  EXPECT_GE(clock->waited_ns, 10'000'000);
}

// A timer that writes down what it frames.
struct Notes final : StreamTimer {
  explicit Notes(std::string& to) : text(to) {}
  void begin() override { text += '('; }
  void end() override { text += ')'; }
  std::string& text;
};

// The host waits for nothing then: operations, and what lets a stream wait for them, lie between the marks.
TEST(CountedWaits, OfADeviceLieBetweenMarksOnItsStream) {
  std::string notes;
  const auto clock = std::make_shared<WaitClock>();
  clock->timer = std::make_unique<Notes>(notes);
  const auto group = counting_waits(std::make_unique<AwaitingCommunicator>(), clock);
  const PendingPtr pending = group->exchange({});
  notes += " beside ";
  pending->wait([&] { notes += "order"; });
  EXPECT_EQ(notes, "() beside (order)");
  EXPECT_EQ(clock->waited_ns, 0);
  EXPECT_THROW(group->exchange({})->wait([] { throw std::runtime_error("lost"); }), std::runtime_error);
  EXPECT_EQ(notes, "() beside (order)()()");
}

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
  EXPECT_GE(clock->waited_ns, 10'000'000);  // the other rank came later
  EXPECT_EQ(counting_waits(nullptr, clock), nullptr);
}

}  // namespace
}  // namespace sluice::comm
