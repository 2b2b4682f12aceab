// Ranks are threads here, and the fake is their control group; gloo_test kills and freezes real processes.
#include "transport/heartbeat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "comm/test_fake.h"

namespace sluice::transport {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kLongestWait_ns = 10'000'000'000;

// Runs body(rank, heartbeat, number of on_lost callbacks) for every rank in a thread of its own.
using Body = std::function<void(int, std::unique_ptr<Heartbeat>&, std::atomic<int>&)>;

void run_ranks(
    int ranks, const Body& body, const std::function<bool(int)>& at_work = [](int) { return false; }) {
  comm::FakeWorld world(ranks);
  std::vector<int> all(static_cast<size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      std::atomic<int> callbacks = 0;
      const auto control = world.transport(rank)->communicator("control", all);
      HeartbeatOptions options;
      options.key = {"secret", "run", ranks};
      options.beat_ns = 20'000'000;
      options.at_work = [&] { return at_work(rank); };
      options.on_lost = [&](const LostRank&) { ++callbacks; };
      auto heartbeat = std::make_unique<Heartbeat>(*control, options);
      body(rank, heartbeat, callbacks);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(HeartbeatNews, GoodbyeIsNoLoss) {
  std::barrier everybody(5);
  run_ranks(5, [&](int rank, std::unique_ptr<Heartbeat>& heartbeat, std::atomic<int>& callbacks) {
    if (rank % 2 == 0) {
      heartbeat->goodbye();
      heartbeat.reset();
    }
    everybody.arrive_and_wait();
    if (rank % 2 == 1) {
      EXPECT_FALSE(heartbeat->wait_for_lost_rank(200'000'000).has_value());
      heartbeat->goodbye();
    }
    EXPECT_EQ(callbacks, 0);
  });
}

TEST(HeartbeatNews, EndWithoutGoodbyeIsNamedOnceByAllWhoeverItIs) {
  for (const int victim : {0, 1, 3}) {
    std::barrier everybody(4);
    run_ranks(4, [&](int rank, std::unique_ptr<Heartbeat>& heartbeat, std::atomic<int>& callbacks) {
      if (rank == victim) {
        heartbeat.reset();
        everybody.arrive_and_wait();
        return;
      }
      const std::optional<LostRank> loss = heartbeat->wait_for_lost_rank(kLongestWait_ns);
      everybody.arrive_and_wait();
      ASSERT_TRUE(loss.has_value());
      EXPECT_EQ(loss->rank, victim);
      EXPECT_THAT(loss->text, HasSubstr("was lost: its connection closed"));
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      EXPECT_EQ(callbacks, 1);
    });
  }
}

// All ranks end as soon as they learn of the loss, as in training; all of them still name the first.
TEST(HeartbeatNews, ThoseThatEndBecauseOfALossAreNotNamed) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    run_ranks(6, [&](int rank, std::unique_ptr<Heartbeat>& heartbeat, std::atomic<int>&) {
      if (rank != 4) {
        const std::optional<LostRank> loss = heartbeat->wait_for_lost_rank(kLongestWait_ns);
        ASSERT_TRUE(loss.has_value());
        EXPECT_EQ(loss->rank, 4);
      }
      heartbeat.reset();
    });
  }
}

TEST(HeartbeatNews, ReportedFailureReachesEveryRankWithItsReason) {
  run_ranks(4, [&](int rank, std::unique_ptr<Heartbeat>& heartbeat, std::atomic<int>&) {
    if (rank == 3) {
      heartbeat->report_failure("the disk is full", 3);
      heartbeat.reset();
      return;
    }
    const std::optional<LostRank> loss = heartbeat->wait_for_lost_rank(kLongestWait_ns);
    ASSERT_TRUE(loss.has_value());
    EXPECT_EQ(loss->rank, 3);
    EXPECT_THAT(loss->text, AllOf(HasSubstr("rank 3 (process "), HasSubstr("failed: the disk is full")));
    EXPECT_TRUE(loss->reported);
    EXPECT_EQ(loss->exit_status, 3);
  });
}

// Ranks 2 and 3 are not connected to each other: hubs forward whether a rank is at work, and also its end.
TEST(HeartbeatNews, EveryRankKnowsWhetherAnotherIsAtWork) {
  constexpr int kRanks = 4;
  for (const int worker : {0, 1, 3}) {
    std::atomic<bool> working = true;
    std::barrier everybody(kRanks);
    const auto until = [](const Heartbeat& heartbeat, bool wanted) {
      while (heartbeat.others_at_work() != wanted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    run_ranks(
        kRanks,
        [&](int rank, std::unique_ptr<Heartbeat>& heartbeat, std::atomic<int>&) {
          if (rank != worker) until(*heartbeat, true);
          everybody.arrive_and_wait();
          working = false;
          until(*heartbeat, false);
          everybody.arrive_and_wait();
          heartbeat->goodbye();
        },
        [&](int rank) { return rank == worker && working; });
  }
}

TEST(HeartbeatNews, OneRankHasNobodyToLose) {
  run_ranks(1, [](int, std::unique_ptr<Heartbeat>& heartbeat, std::atomic<int>&) {
    EXPECT_FALSE(heartbeat->lost().has_value());
    heartbeat->report_failure("nobody hears it", 1);
    heartbeat->goodbye();
  });
}

}  // namespace
}  // namespace sluice::transport
