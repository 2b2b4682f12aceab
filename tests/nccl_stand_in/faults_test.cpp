// Errors that NCCL would answer with a hang or with wrong bytes are found, and a lost rank ends all others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "ranks.h"
#include "transport/nccl_handle.h"

namespace sluice::nccl_stand_in {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

using Value = std::array<int64_t, 2>;

// Swaps a value with the other of two ranks, and lets the stream go on.
void swap(comm::Communicator& pair, Value& value) {
  const std::array<comm::Message, 2> messages{
      {{.send = value.data(), .bytes = 8, .peer = 1 - pair.rank()},
       {.receive = value.data() + 1, .bytes = 8, .peer = 1 - pair.rank()}}};
  pair.exchange(messages)->wait();
}

// Rank 1 issues the two swaps in the other order.
void swap_in_two_orders(comm::Transport& transport, bool connected) {
  const auto a = transport.communicator("a", {0, 1}), b = transport.communicator("b", {0, 1});
  Value value{};
  if (connected) {
    swap(*a, value);
    swap(*b, value);
    wait_for_stream();
  }
  const bool first = transport.rank() == 0;
  swap(first ? *a : *b, value);
  swap(first ? *b : *a, value);
  wait_for_stream();
}

TEST(NcclStandIn, AnotherOrderOfCommunicatorsIsACircle) {
  const Outcome outcome =
      run_ranks(2, {}, [](comm::Transport& transport) { swap_in_two_orders(transport, true); });
  EXPECT_THAT(outcome.fault, AllOf(HasSubstr("a circle"), HasSubstr("'a' #1"), HasSubstr("'b' #1")));
  EXPECT_THAT(outcome.errors, Each(Not(std::string())));
}

TEST(NcclStandIn, AnotherOrderOfCommunicatorsStopsRanksThatConnect) {
  const Outcome outcome =
      run_ranks(2, {}, [](comm::Transport& transport) { swap_in_two_orders(transport, false); });
  EXPECT_THAT(outcome.fault, AllOf(HasSubstr("every rank waits"), HasSubstr("'a' #0 exchange"),
                                   HasSubstr("'b' #0 exchange"), HasSubstr("to connect")));
}

// A ring step, as lanes pass keys and values on.
void pass_on(comm::Transport& transport) {
  const int size = transport.world_size(), rank = transport.rank();
  const auto ring = transport.communicator("ring", all_ranks(size));
  const int64_t own = rank;
  int64_t next = -1;
  const std::array<comm::Message, 2> messages{
      {{.send = &own, .bytes = 8, .peer = (rank + 1) % size},
       {.receive = &next, .bytes = 8, .peer = (rank + size - 1) % size}}};
  ring->exchange(messages)->wait();
  wait_for_stream();
  EXPECT_EQ(next, (rank + size - 1) % size);
}

TEST(NcclStandIn, ARingNeedsGroups) {
  EXPECT_EQ(run_ranks(3, {}, pass_on).fault, "");
  const Outcome outcome = run_ranks(3, {.ignores_groups = true}, [](comm::Transport& transport) {
    EXPECT_THROW(pass_on(transport), base::RunError);
  });
  EXPECT_THAT(outcome.fault, AllOf(HasSubstr("a circle"), HasSubstr("rank 0's 'ring'"),
                                   HasSubstr("rank 1's 'ring'"), HasSubstr("rank 2's 'ring'")));
}

TEST(NcclStandIn, MessagesOfUnlikeSizesAreFound) {
  const Outcome outcome = run_ranks(2, {}, [](comm::Transport& transport) {
    const auto pair = transport.communicator("pair", {0, 1});
    std::array<std::byte, 24> data{};
    if (transport.rank() == 0) pair->send(data.data(), 16, 1)->wait();
    if (transport.rank() == 1) pair->receive(data.data(), 24, 0)->wait();
    wait_for_stream();
  });
  EXPECT_THAT(outcome.fault, AllOf(HasSubstr("rank 0's 'pair' #0 send of 16 bytes"),
                                   HasSubstr("rank 1's 'pair' #0 receive of 24 bytes")));
}

TEST(NcclStandIn, CollectivesOfUnlikeTypesAreFound) {
  const Outcome outcome = run_ranks(2, {}, [](comm::Transport& transport) {
    const auto pair = transport.communicator("pair", {0, 1});
    std::array<double, 4> from{}, to{};
    const auto dtype = transport.rank() == 0 ? comm::DType::kFloat32 : comm::DType::kBFloat16;
    pair->reduce_scatter(from.data(), to.data(), 2, dtype)->wait();
    wait_for_stream();
  });
  EXPECT_THAT(outcome.fault, AllOf(HasSubstr("'pair' #0 reduce_scatter"), HasSubstr("meets")));
}

TEST(NcclStandIn, ARankThatIssuesNothingIsNamedByThoseThatWait) {
  const Outcome outcome = run_ranks(2, {}, [](comm::Transport& transport) {
    const auto pair = transport.communicator("pair", {0, 1});
    Value value{};
    swap(*pair, value);
    if (transport.rank() == 0) swap(*pair, value);
    wait_for_stream();
  });
  EXPECT_THAT(outcome.fault, AllOf(HasSubstr("every rank waits"), HasSubstr("rank 0's 'pair' #1 exchange"),
                                   HasSubstr("rank 1: closes 'pair'")));
}

// Rank 1 goes while two kernels of rank 0 wait for it, of two communicators.
Outcome lose_rank(const NetworkOptions& options) {
  std::atomic<bool> waits{false};
  return run_ranks(2, options, [&](comm::Transport& transport) {
    const auto a = transport.communicator("a", {0, 1}), b = transport.communicator("b", {0, 1});
    Value value{};
    swap(*a, value);
    swap(*b, value);
    wait_for_stream();
    if (transport.rank() == 1) {
      while (!waits) std::this_thread::yield();
      Network::of_process().lose(1);
      return;
    }
    swap(*a, value);
    swap(*b, value);
    waits = true;
    wait_for_stream();  // until the transport's own thread has seen the loss and aborts
    EXPECT_THROW(swap(*b, value), base::RunError);
    transport.check();
  });
}

TEST(NcclStandIn, ALostRankEndsAllCommunicatorsOfTheOthers) {
  const Outcome outcome = lose_rank({});
  EXPECT_EQ(outcome.fault, "");
  EXPECT_THAT(outcome.errors[0],
              AllOf(HasSubstr("exchange failed"), HasSubstr("remote process exited or there was a network")));
  EXPECT_EQ(outcome.counts.communicators, 0);
}

// As over NVLink, where the heartbeat has to tell: the wait would not end.
TEST(NcclStandIn, ALossThatNcclDoesNotSeeIsAFault) {
  EXPECT_THAT(lose_rank({.losses_are_seen = false}).fault,
              AllOf(HasSubstr("every rank waits"), HasSubstr("rank 0's 'a' #1 exchange")));
}

TEST(NcclStandIn, AbortsOneByOneWaitForEachOther) {
  EXPECT_THAT(lose_rank({.ignores_groups_of_aborts = true}).fault,
              AllOf(HasSubstr("the abort of 'a' waits for rank 0's 'b' #1"), HasSubstr("need one group")));
}

// A thread that watches one rank's communicators has references to them while the rank drops its own. It must
// not close them in an order of its own.
TEST(NcclStandIn, RanksCloseCommunicatorsInTheirOwnOrder) {
  static thread_local bool is_rank = false;
  enum Phase : uint8_t { kMaking, kMade, kWatched, kDropped };
  std::atomic<Phase> phase{kMaking};
  const auto before_state = [&phase] {
    Phase made = kMade;
    if (is_rank || !phase.compare_exchange_strong(made, kWatched)) return;
    for (int i = 0; i < 100 && phase != kDropped; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  const Outcome outcome = run_ranks(2, {.before_state = before_state}, [&phase](comm::Transport& transport) {
    is_rank = true;
    auto a = transport.communicator("a", {0, 1}), b = transport.communicator("b", {0, 1});
    Value value{};
    swap(*a, value);
    wait_for_stream();
    if (transport.rank() == 0) phase = kMade;
    while (phase < kWatched) std::this_thread::yield();
    b.reset();
    a.reset();
    phase = kDropped;
  });
  EXPECT_EQ(outcome.fault, "");
  EXPECT_EQ(outcome.counts.communicators, 0);
}

TEST(NcclStandIn, ARankThatNeverJoinsEndsTheWaitOfTheOthers) {
  Network::of_process().reset({});
  ncclUniqueId id{};
  ASSERT_EQ(transport::nccl_api().get_unique_id(&id), ncclSuccess);
  const auto handle = std::make_shared<transport::NcclHandle>(
      transport::nccl_api(), transport::NcclHandle::Options{.name = "lone", .members = 2}, id);
  EXPECT_EQ(handle->join(std::chrono::milliseconds(20)),
            "joining 'lone' failed: NCCL was still busy at the timeout");
  transport::NcclHandle::cut_off({handle});
  EXPECT_EQ(Network::of_process().counts().communicators, 0);
}

}  // namespace
}  // namespace sluice::nccl_stand_in
