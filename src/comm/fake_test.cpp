#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"
#include "comm/test_fake.h"

namespace sluice::comm {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// By rank: the error that its thread threw, "" if none.
using Errors = std::vector<std::string>;

// Runs body(transport) for every rank in a registered thread.
Errors run_ranks(FakeWorld& world, int ranks, const std::function<void(Transport&)>& body) {
  Errors errors(static_cast<size_t>(ranks));
  std::vector<FakeWorld::Participant> participants;
  for (int rank = 0; rank < ranks; ++rank) participants.emplace_back(world, rank);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank, mine = std::move(participants[rank])] {
      try {
        body(*world.transport(rank));
      } catch (const base::RunError& error) {
        errors[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

std::vector<int> all(int ranks) {
  std::vector<int> result(ranks);
  std::iota(result.begin(), result.end(), 0);
  return result;
}

TEST(Fake, CollectivesGiveEveryMemberItsPart) {
  FakeWorld world(3, {.max_delay_ns = 100'000});
  const Errors errors = run_ranks(world, 3, [](Transport& transport) {
    const int rank = transport.rank();
    const auto group = transport.communicator("world", all(3));
    std::vector<int> gathered(3);
    group->all_gather(&rank, gathered.data(), sizeof(int))->wait();
    EXPECT_EQ(gathered, (std::vector<int>{0, 1, 2}));

    // Rank r sends r + j bytes to rank j, each of value 10·r + j.
    std::string out;
    std::vector<int64_t> send_bytes;
    std::vector<int64_t> receive_bytes;
    std::string expected;
    for (int j = 0; j < 3; ++j) {
      send_bytes.push_back(rank + j);
      receive_bytes.push_back(rank + j);
      out += std::string(rank + j, static_cast<char>(10 * rank + j));
      expected += std::string(rank + j, static_cast<char>(10 * j + rank));
    }
    std::string in(expected.size(), '?');
    group->all_to_all(out.data(), send_bytes, in.data(), receive_bytes)->wait();
    EXPECT_EQ(in, expected);

    std::vector<float> parts(6);
    std::iota(parts.begin(), parts.end(), static_cast<float>(rank));
    std::vector<float> sum(2);
    group->reduce_scatter(parts.data(), sum.data(), 2, DType::kFloat32)->wait();
    EXPECT_EQ(sum, (std::vector<float>{3.0F + 6.0F * rank, 6.0F + 6.0F * rank}));
  });
  EXPECT_EQ(errors, Errors(3));
}

TEST(Fake, MessagesOfAPairArriveInTheOrderOfIssue) {
  FakeWorld world(2, {.seed = 3, .max_delay_ns = 50'000});
  const Errors errors = run_ranks(world, 2, [](Transport& transport) {
    const auto pair = transport.communicator("p2p", all(2));
    std::vector<int> values(100);
    if (transport.rank() == 0) std::iota(values.begin(), values.end(), 0);
    std::vector<PendingPtr> pending;
    for (int& value : values) {
      pending.push_back(transport.rank() == 0 ? pair->send(&value, sizeof value, 1)
                                              : pair->receive(&value, sizeof value, 0));
    }
    for (const PendingPtr& operation : pending) operation->wait();
    for (int i = 0; i < 100; ++i) EXPECT_EQ(values[i], i);
  });
  EXPECT_EQ(errors, Errors(2));
}

TEST(Fake, SendWaitsForTheReceive) {
  FakeWorld world(2);
  std::atomic<bool> posted = false;
  const Errors errors = run_ranks(world, 2, [&](Transport& transport) {
    const auto go = transport.communicator("go", all(2));
    const auto pair = transport.communicator("p2p", all(2));
    int value = 42;
    if (transport.rank() == 0) {
      const PendingPtr sent = pair->send(&value, sizeof value, 1);
      go->send(&value, sizeof value, 1)->wait();
      sent->wait();
      EXPECT_TRUE(posted);
    } else {
      go->receive(&value, sizeof value, 0)->wait();
      posted = true;
      pair->receive(&value, sizeof value, 0)->wait();
    }
  });
  EXPECT_EQ(errors, Errors(2));
}

TEST(Fake, RingStepAsOneExchangeDoesNotBlock) {
  FakeWorld world(4, {.max_delay_ns = 20'000});
  const Errors errors = run_ranks(world, 4, [](Transport& transport) {
    const auto ring = transport.communicator("ring", all(4));
    int mine = transport.rank();
    for (int step = 0; step < 4; ++step) {
      int next = -1;
      const std::vector<Message> messages = {
          {.send = &mine, .bytes = sizeof mine, .peer = (transport.rank() + 1) % 4},
          {.receive = &next, .bytes = sizeof next, .peer = (transport.rank() + 3) % 4}};
      ring->exchange(messages)->wait();
      mine = next;
    }
    EXPECT_EQ(mine, transport.rank());
  });
  EXPECT_EQ(errors, Errors(4));
}

TEST(Fake, RingOfSingleSendsIsReportedWithItsCycle) {
  FakeWorld world(3);
  const Errors errors = run_ranks(world, 3, [](Transport& transport) {
    const auto ring = transport.communicator("ring", all(3));
    int mine = 0;
    int next = 0;
    const PendingPtr sent = ring->send(&mine, sizeof mine, (transport.rank() + 1) % 3);
    const PendingPtr received = ring->receive(&next, sizeof next, (transport.rank() + 2) % 3);
    sent->wait();
    received->wait();
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("deadlock"), HasSubstr("rank 0 waits in 'ring' #0 send to 1"),
                             HasSubstr("rank 1 waits in 'ring' #0 send to 2"),
                             HasSubstr("rank 2 waits in 'ring' #0 send to 0")));
  }
}

TEST(Fake, CycleOverTwoCommunicatorsIsReported) {
  FakeWorld world(2, {.max_delay_ns = 10'000});
  const Errors errors = run_ranks(world, 2, [](Transport& transport) {
    const auto group = transport.communicator("world", all(2));
    const auto pair = transport.communicator("p2p", all(2));
    int value = 0;
    std::vector<int> both(2);
    const auto gather = [&] { group->all_gather(&value, both.data(), sizeof value)->wait(); };
    gather();
    if (transport.rank() == 0) {
      pair->receive(&value, sizeof value, 1)->wait();
      gather();
    } else {
      gather();
      pair->send(&value, sizeof value, 0)->wait();
    }
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("rank 0 waits in 'p2p' #0 receive from 1"),
                               HasSubstr("rank 1 waits in 'world' #1 all_gather")));
  EXPECT_EQ(errors[0], errors[1]);
}

TEST(Fake, CycleOverStreamsOfOneRankIsReportedWhileOtherRanksRun) {
  FakeWorld world(3);
  std::atomic<bool> stop = false;
  FakeWorld::Participant busy(world, 2);  // never waits
  Errors errors(3);
  std::vector<std::thread> threads;
  std::vector<FakeWorld::Participant> participants;
  for (const int rank : {0, 0, 1}) participants.emplace_back(world, rank);
  const auto transport_0 = world.transport(0);
  const auto a_0 = transport_0->communicator("a", {0, 1});
  const auto b_0 = transport_0->communicator("b", {0, 1});
  const auto run = [&](int thread, const std::function<void()>& body) {
    threads.emplace_back([&errors, thread, body, mine = std::move(participants[thread])] {
      try {
        body();
      } catch (const base::RunError& error) {
        errors[thread] = error.what();
      }
    });
  };
  int value[3] = {};
  run(0, [&] { a_0->receive(&value[0], sizeof(int), 1)->wait(); });
  run(1, [&] { b_0->receive(&value[1], sizeof(int), 1)->wait(); });
  run(2, [&] {
    const auto transport = world.transport(1);
    const auto a = transport->communicator("a", {0, 1});
    const auto b = transport->communicator("b", {0, 1});
    a->send(&value[2], sizeof(int), 0)->wait();
    a->receive(&value[2], sizeof(int), 0)->wait();  // rank 0 never sends
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(errors[0], "");
  EXPECT_THAT(errors[1], AllOf(HasSubstr("rank 0 waits in 'b' #0 receive from 1"),
                               HasSubstr("rank 1 waits in 'a' #1 receive from 0")));
  EXPECT_EQ(errors[2], errors[1]);
}

TEST(Fake, RankThatLeftIsNamed) {
  FakeWorld world(2);
  const Errors errors = run_ranks(world, 2, [](Transport& transport) {
    const auto pair = transport.communicator("p2p", all(2));
    int value = 0;
    if (transport.rank() == 0) pair->receive(&value, sizeof value, 1)->wait();
  });
  EXPECT_THAT(errors[0],
              AllOf(HasSubstr("rank 0 waits in 'p2p' #0 receive from 1"), HasSubstr("rank 1 has left")));
}

TEST(Fake, DifferentCollectivesAtOnePlaceAreAMismatch) {
  FakeWorld world(2);
  const Errors errors = run_ranks(world, 2, [](Transport& transport) {
    const auto group = transport.communicator("tp", all(2));
    std::vector<float> in(2);
    std::vector<float> out(4);
    group->all_gather(in.data(), out.data(), 4)->wait();
    if (transport.rank() == 0) {
      group->all_gather(in.data(), out.data(), 8)->wait();
    } else {
      group->reduce_scatter(in.data(), out.data(), 1, DType::kFloat32)->wait();
    }
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error,
                AllOf(HasSubstr("mismatch on 'tp'"), HasSubstr("rank 0 issued #1 all_gather of 8 bytes"),
                      HasSubstr("rank 1 issued #1 reduce_scatter of 1 float32")));
  }
}

TEST(Fake, DifferentSizesOfAMessageAreAMismatch) {
  FakeWorld world(2);
  const Errors errors = run_ranks(world, 2, [](Transport& transport) {
    const auto pair = transport.communicator("p2p", all(2));
    std::vector<char> data(10);
    if (transport.rank() == 0) {
      pair->send(data.data(), 9, 1)->wait();
    } else {
      pair->receive(data.data(), 10, 0)->wait();
    }
  });
  EXPECT_THAT(errors[0] + errors[1], AllOf(HasSubstr("mismatch on 'p2p'"), HasSubstr("9 bytes"),
                                           HasSubstr("10 bytes"), HasSubstr("#0")));
}

TEST(Fake, DifferentSplitsOfAnAllToAllAreAMismatch) {
  FakeWorld world(2);
  const Errors errors = run_ranks(world, 2, [](Transport& transport) {
    const auto group = transport.communicator("a2a", all(2));
    std::vector<char> data(10);
    const std::vector<int64_t> ones = {1, 1};
    const std::vector<int64_t> other = {1, transport.rank() == 0 ? 1 : 2};
    const std::vector<int64_t>& expected = transport.rank() == 0 ? other : ones;
    const std::vector<int64_t> sent = transport.rank() == 0 ? ones : std::vector<int64_t>{3, 1};
    std::vector<char> in(10);
    group->all_to_all(data.data(), sent, in.data(), expected)->wait();
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("mismatch on 'a2a'"), HasSubstr("rank 1 #0 sends 3 bytes to rank 0"),
                               HasSubstr("expects 1")));
}

TEST(Fake, CommunicatorsMadeInDifferentOrdersAreAnError) {
  FakeWorld world(2);
  const auto first = world.transport(0);
  const auto second = world.transport(1);
  first->communicator("a", {0, 1});
  first->communicator("b", {0, 1});
  EXPECT_THROW(second->communicator("b", {0, 1}), base::RunError);
}

TEST(Fake, AbandonedOperationFailsTheWorld) {
  FakeWorld world(2);
  const auto first = world.transport(0)->communicator("p2p", {0, 1});
  int value = 0;
  first->send(&value, sizeof value, 1);
  EXPECT_THROW(first->send(&value, sizeof value, 1), base::RunError);
}

TEST(Fake, WaitThatLastsTooLongIsAnError) {
  FakeWorld world(2, {.timeout_ns = 1'000'000});
  const auto first = world.transport(0)->communicator("p2p", {0, 1});
  int value = 0;
  const PendingPtr pending = first->send(&value, sizeof value, 1);
  EXPECT_THROW(pending->wait(), base::RunError);
}

// Random events over random groups, in one global order on all ranks: no delay can cause a deadlock.
TEST(Fake, RandomProgramsInOneGlobalOrderEnd) {
  constexpr int kRanks = 5;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    FakeWorld world(kRanks, {.seed = seed, .max_delay_ns = 20'000});
    const Errors errors = run_ranks(world, kRanks, [&](Transport& transport) {
      const std::vector<std::vector<int>> groups = {{0, 1, 2, 3, 4}, {0, 1}, {1, 2, 3}, {0, 4}};
      std::vector<std::unique_ptr<Communicator>> members;
      for (size_t g = 0; g < groups.size(); ++g) {
        const bool mine = std::find(groups[g].begin(), groups[g].end(), transport.rank()) != groups[g].end();
        members.push_back(mine ? transport.communicator(base::text("g", g), groups[g]) : nullptr);
      }
      base::Rng rng(seed);
      for (int event = 0; event < 100; ++event) {
        const auto& group = members[rng.below(groups.size())];
        const bool gathers = rng.below(2) == 0;
        if (group == nullptr) continue;
        if (gathers) {
          std::vector<int> out(group->size());
          group->all_gather(&event, out.data(), sizeof event)->wait();
          EXPECT_EQ(out, std::vector<int>(group->size(), event));
        } else if (group->rank() < 2) {
          int value = event;
          if (group->rank() == 0) group->send(&value, sizeof value, 1)->wait();
          if (group->rank() == 1) group->receive(&value, sizeof value, 0)->wait();
          EXPECT_EQ(value, event);
        }
      }
    });
    EXPECT_EQ(errors, Errors(kRanks));
  }
}

}  // namespace
}  // namespace sluice::comm
