// Ranks are processes of this test program: the local launcher starts it again with one case to run. Forking
// alone would be delicate once libtorch has threads.
#include "transport/gloo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <numeric>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"
#include "transport/heartbeat.h"
#include "transport/local_launcher.h"
#include "transport/socket.h"
#include "transport/test_launch.h"

extern char** environ;

namespace sluice::transport {
namespace {

using comm::DType;
using ::testing::HasSubstr;

constexpr int kNamedRank = 100;  // exit status kNamedRank + r: the rank's heartbeat named rank r

Environment this_environment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string line = *entry;
    const size_t equals = line.find('=');
    if (equals != std::string::npos) environment[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return environment;
}

LocalResult run_ranks(const std::string& name, int ranks) {
  return launch_locally({.work =
                             [&] {
                               ::setenv("SLUICE_TEST_CASE", name.c_str(), 1);
                               leave_listeners_open();
                               ::execl("/proc/self/exe", "gloo_test", "--gtest_filter=GlooRank.DISABLED_Case",
                                       "--gtest_also_run_disabled_tests", "--gtest_brief=1", nullptr);
                             },
                         .ranks = ranks,
                         .grace_ns = 60'000'000'000});
}

std::vector<int> all(int ranks) {
  std::vector<int> result(static_cast<size_t>(ranks));
  std::iota(result.begin(), result.end(), 0);
  return result;
}

// Element i that `from` sends to `to` in the cases below.
template <typename Element>
Element value(int from, int to, int64_t i) {
  const double real =
      base::Rng(static_cast<uint64_t>(from * 64 + to), static_cast<uint64_t>(i)).uniform() - 0.5;
  if constexpr (std::is_same_v<Element, uint16_t>) {
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(real)) >> 16);
  } else {
    return static_cast<Element>(real);
  }
}

void case_all_gather(comm::Transport& transport) {
  const int size = transport.world_size();
  const auto group = transport.communicator("world", all(size));
  for (const int64_t bytes : {0, 1, 1000, 1 << 20}) {
    const std::string mine(static_cast<size_t>(bytes), static_cast<char>('a' + transport.rank()));
    std::string gathered(static_cast<size_t>(bytes) * size, '?');
    std::string expected;
    for (int r = 0; r < size; ++r)
      expected += std::string(static_cast<size_t>(bytes), static_cast<char>('a' + r));
    group->all_gather(mine.data(), gathered.data(), bytes)->wait();
    EXPECT_EQ(gathered, expected);
  }
}

// Unequal splits; every third is empty, and rank 0 receives nothing.
void case_all_to_all(comm::Transport& transport) {
  const int size = transport.world_size();
  const int rank = transport.rank();
  const auto group = transport.communicator("world", all(size));
  for (const int64_t scale : {1, 100'000}) {
    const auto bytes_of = [&](int from, int to) {
      return to == 0 ? int64_t{0} : scale * ((from * 5 + to) % 3 + (from == to ? 1 : 0));
    };
    std::vector<int64_t> send_bytes;
    std::vector<int64_t> receive_bytes;
    std::string out;
    std::string expected;
    for (int peer = 0; peer < size; ++peer) {
      send_bytes.push_back(bytes_of(rank, peer));
      receive_bytes.push_back(bytes_of(peer, rank));
      out += std::string(static_cast<size_t>(send_bytes.back()), static_cast<char>(rank * 16 + peer));
      expected += std::string(static_cast<size_t>(receive_bytes.back()), static_cast<char>(peer * 16 + rank));
    }
    std::string in(expected.size(), '?');
    for (int repeat = 0; repeat < 3; ++repeat) {
      in.assign(expected.size(), '?');
      group->all_to_all(out.data(), send_bytes, in.data(), receive_bytes)->wait();
      EXPECT_EQ(in, expected);
    }
  }
}

// Rank 1 is late: for each operation all other ranks report it as the awaited peer.
void case_late(comm::Transport& transport) {
  const int size = transport.world_size();
  const auto group = transport.communicator("world", all(size));
  const std::vector<int64_t> bytes(static_cast<size_t>(size), 8);
  std::vector<double> out(static_cast<size_t>(size)), in(out);
  group->all_gather(out.data(), in.data(), 8)->wait();
  for (int operation = 0; operation < 2; ++operation) {
    if (transport.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const comm::PendingPtr pending = operation == 0
                                         ? group->all_to_all(out.data(), bytes, in.data(), bytes)
                                         : group->reduce_scatter(out.data(), in.data(), 1, DType::kFloat64);
    pending->wait();
    if (transport.rank() == 1) continue;
    EXPECT_EQ(pending->awaited_peer(), 1);
  }
}

template <typename Element>
void check_reduce_scatter(comm::Communicator& group, DType dtype) {
  for (const int64_t count : {0, 1, 1001, 70'000}) {
    std::vector<Element> parts;
    for (int to = 0; to < group.size(); ++to) {
      for (int64_t i = 0; i < count; ++i) parts.push_back(value<Element>(group.rank(), to, i));
    }
    std::vector<Element> sum(static_cast<size_t>(count));
    group.reduce_scatter(parts.data(), sum.data(), count, dtype)->wait();
    std::vector<Element> expected(static_cast<size_t>(count));
    for (int from = 0; from < group.size(); ++from) {
      std::vector<Element> part;
      for (int64_t i = 0; i < count; ++i) part.push_back(value<Element>(from, group.rank(), i));
      if (from == 0) {
        expected = part;
      } else {
        comm::accumulate(expected.data(), part.data(), count, dtype);
      }
    }
    EXPECT_EQ(sum, expected);
  }
}

void case_reduce_scatter(comm::Transport& transport) {
  const auto group = transport.communicator("world", all(transport.world_size()));
  check_reduce_scatter<float>(*group, DType::kFloat32);
  check_reduce_scatter<double>(*group, DType::kFloat64);
  check_reduce_scatter<uint16_t>(*group, DType::kBFloat16);
}

void case_point_to_point(comm::Transport& transport) {
  const int size = transport.world_size();
  const int rank = transport.rank();
  const auto ring = transport.communicator("ring", all(size));
  for (const int64_t bytes : {4, 1 << 20}) {
    std::string mine(static_cast<size_t>(bytes), static_cast<char>(rank));
    std::string next(mine.size(), '?');
    for (int step = 0; step < size; ++step) {
      const std::vector<comm::Message> messages = {
          {.send = mine.data(), .bytes = bytes, .peer = (rank + 1) % size},
          {.receive = next.data(), .bytes = bytes, .peer = (rank + size - 1) % size}};
      ring->exchange(messages)->wait();
      mine = next;
    }
    EXPECT_EQ(mine, std::string(mine.size(), static_cast<char>(rank)));
  }
  if (rank > 1) return;
  // Both directions of one pair at once, many operations in flight, waited for in reverse order.
  std::vector<int> out(50);
  std::vector<int> in(50, -1);
  std::iota(out.begin(), out.end(), 100 * rank);
  std::vector<comm::PendingPtr> pending;
  for (size_t i = 0; i < out.size(); ++i) {
    pending.push_back(ring->send(&out[i], sizeof(int), 1 - rank));
    pending.push_back(ring->receive(&in[i], sizeof(int), 1 - rank));
  }
  while (!pending.empty()) {
    pending.back()->wait();
    pending.pop_back();
  }
  for (int i = 0; i < 50; ++i) EXPECT_EQ(in[static_cast<size_t>(i)], 100 * (1 - rank) + i);
}

// Threads of one rank use one communicator each, at the same time, with different traffic.
void case_overlap(comm::Transport& transport) {
  const int size = transport.world_size();
  std::vector<std::unique_ptr<comm::Communicator>> groups;
  for (int i = 0; i < 3; ++i) groups.push_back(transport.communicator(base::text("stream", i), all(size)));
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&group = *groups[static_cast<size_t>(i)], i] {
      for (int step = 0; step < 50; ++step) {
        const int64_t count = 1 + (i * 37 + step * 101) % 5000;
        const std::vector<int> mine(static_cast<size_t>(count), 1000 * group.rank() + i);
        std::vector<int> gathered(static_cast<size_t>(count) * group.size());
        group.all_gather(mine.data(), gathered.data(), count * 4)->wait();
        for (int r = 0; r < group.size(); ++r)
          EXPECT_EQ(gathered[static_cast<size_t>(r * count)], 1000 * r + i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Communicators over some of the ranks; those with a single rank copy locally.
void case_groups(comm::Transport& transport) {
  const int rank = transport.rank();
  const auto alone = transport.communicator(base::text("alone", rank), {rank});
  const auto half = transport.communicator(rank < 2 ? "low" : "high",
                                           rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3});
  const auto odd = rank == 2 ? nullptr : transport.communicator("without2", {0, 1, 3});
  int out[3] = {-1, -1, -1};
  alone->all_gather(&rank, out, sizeof rank)->wait();
  EXPECT_EQ(out[0], rank);
  half->all_gather(&rank, out, sizeof rank)->wait();
  EXPECT_EQ(out[0], rank < 2 ? 0 : 2);
  EXPECT_EQ(out[1], rank < 2 ? 1 : 3);
  if (odd == nullptr) return;
  EXPECT_EQ(odd->rank(), rank == 3 ? 2 : rank);
  odd->all_gather(&rank, out, sizeof rank)->wait();
  EXPECT_EQ(std::vector<int>(out, out + 3), (std::vector<int>{0, 1, 3}));
}

// The victim dies while others wait for it; they exit with the number of the rank that was reported lost.
void case_killed(comm::Transport& transport, int victim) {
  const int size = transport.world_size();
  const auto control = transport.communicator("control", all(size));
  const auto group = transport.communicator("world", all(size));
  HeartbeatOptions options;
  options.key.world_size = size;
  options.on_lost = [](const LostRank& loss) { _exit(kNamedRank + loss.rank); };
  Heartbeat heartbeat(*control, options);
  int mine = 0;
  std::vector<int> gathered(static_cast<size_t>(size));
  try {
    for (int step = 0;; ++step) {
      if (transport.rank() == victim && step == 20) kill(getpid(), SIGKILL);
      group->all_gather(&mine, gathered.data(), sizeof mine)->wait();
    }
  } catch (const base::RunError&) {
    heartbeat.wait_for_lost_rank(5'000'000'000);
    std::this_thread::sleep_for(std::chrono::seconds(5));  // on_lost ends the process
  }
}

// Rank 2 freezes: the others report its silence and exit. It is then killed for the launcher to collect.
void case_frozen(comm::Transport& transport) {
  const auto control = transport.communicator("control", all(transport.world_size()));
  HeartbeatOptions options;
  options.key.world_size = transport.world_size();
  options.beat_ns = 50'000'000;
  options.silence_ns = 1'000'000'000;
  options.on_lost = [&](const LostRank& loss) { _exit(kNamedRank + loss.rank); };
  Heartbeat heartbeat(*control, options);
  if (transport.rank() == 2) {
    if (fork() == 0) {
      std::this_thread::sleep_for(std::chrono::seconds(4));
      kill(getppid(), SIGKILL);
      _exit(0);
    }
    raise(SIGSTOP);
  }
  std::this_thread::sleep_for(std::chrono::seconds(20));
}

void case_missing(const GlooOptions& options, int missing) {
  if (options.launch.rank == missing) return;
  try {
    gloo_transport(options);
    FAIL() << "joined";
  } catch (const base::RunError& error) {
    EXPECT_THAT(error.what(), HasSubstr(base::text("rank ", missing, " of 4 did not join within")));
  }
}

// Under torchrun the agent serves the store; here rank 0 does so, too. The ranks of two smaller runs with
// other secrets use the same store, but other keys.
void case_agent_store(const GlooOptions& options) {
  const auto meeting = gloo_transport(options);
  const auto control = meeting->communicator("control", all(4));
  c10::intrusive_ptr<c10d::TCPStore> agent;
  int64_t port = 0;
  if (meeting->rank() == 0) {
    c10d::TCPStoreOptions served;
    served.isServer = true;
    served.waitWorkers = false;
    agent = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", served);
    port = agent->getPort();
  }
  std::vector<int64_t> ports(4);
  control->all_gather(&port, ports.data(), sizeof port)->wait();
  const bool odd = meeting->rank() % 2 == 1;
  for (const int attempt : {0, 1}) {
    GlooOptions client = options;
    client.launch.agent_store = true;
    client.launch.master_port = static_cast<int>(ports[0]);
    client.launch.attempt = attempt;
    const auto whole = gloo_transport(client);
    client.launch.rank = meeting->rank() / 2;
    client.launch.world_size = 2;
    client.launch.secret = odd ? "odd" : "even";
    const auto half = gloo_transport(client);
    std::vector<int> ranks(4);
    const int rank = meeting->rank();
    whole->communicator("world", all(4))->all_gather(&rank, ranks.data(), sizeof rank)->wait();
    EXPECT_EQ(ranks, all(4));
    half->communicator("world", all(2))->all_gather(&rank, ranks.data(), sizeof rank)->wait();
    EXPECT_EQ(ranks[0], odd ? 1 : 0);
    EXPECT_EQ(ranks[1], odd ? 3 : 2);
  }
  control->all_gather(&port, ports.data(), sizeof port)->wait();  // the agent's store goes last
}

// A peer that never takes part in an operation causes an error with all names. The timeout of operations
// applies, not the timeout of joining: that is far longer here, and in a real run far shorter than a rank may
// work on its own.
void case_timeout(GlooOptions options) {
  const bool waits = options.launch.rank == 1;
  if (waits) options.timeout_ns = 1'000'000'000;
  const auto transport = gloo_transport(options);
  const auto pair = transport->communicator("p2p", all(4));
  int value = 0;
  if (!waits) {  // waits until rank 1 has gone
    EXPECT_THROW(pair->receive(&value, sizeof value, 1)->wait(), base::RunError);
    return;
  }
  try {
    pair->receive(&value, sizeof value, 2)->wait();
    FAIL() << "received";
  } catch (const base::RunError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'p2p' #0 receive with rank 2 failed"));
    EXPECT_THAT(error.what(), HasSubstr("waiting 1000ms"));
  }
}

void run_case(const std::string& name, GlooOptions options) {
  using Case = std::function<void(comm::Transport&)>;
  const std::map<std::string, Case> cases = {
      {"all_gather", case_all_gather},
      {"late", case_late},
      {"all_to_all", case_all_to_all},
      {"reduce_scatter", case_reduce_scatter},
      {"point_to_point", case_point_to_point},
      {"overlap", case_overlap},
      {"groups", case_groups},
      {"killed0", [](comm::Transport& transport) { case_killed(transport, 0); }},
      {"killed1", [](comm::Transport& transport) { case_killed(transport, 1); }},
      {"killed3", [](comm::Transport& transport) { case_killed(transport, 3); }},
      {"frozen", case_frozen},
  };
  options.join_timeout_ns = name.starts_with("missing") ? 1'500'000'000 : 30'000'000'000;
  if (name == "missing2") return case_missing(options, 2);
  if (name == "missing0") return case_missing(options, 0);
  if (name == "agent_store") return case_agent_store(options);
  if (name == "timeout") return case_timeout(options);
  const auto transport = gloo_transport(options);
  cases.at(name)(*transport);
}

TEST(GlooRank, DISABLED_Case) {
  use_batch_scheduling();
  const char* name = std::getenv("SLUICE_TEST_CASE");
  ASSERT_NE(name, nullptr) << "started by the tests below";
  ::signal(SIGPIPE, SIG_IGN);  // as the program does: a lost rank makes calls fail
  run_case(name, {.launch = launch_from(this_environment())});
}

class Gloo : public ::testing::TestWithParam<const char*> {};

TEST_P(Gloo, FourRanksGetTheExpectedBytes) {
  const LocalResult result = run_ranks(GetParam(), 4);
  EXPECT_EQ(result.statuses, (std::vector<int>{0, 0, 0, 0}));
}

INSTANTIATE_TEST_SUITE_P(Operations, Gloo,
                         ::testing::Values("all_gather", "all_to_all", "reduce_scatter", "point_to_point",
                                           "overlap", "groups", "late", "agent_store", "timeout"),
                         [](const auto& info) { return std::string(info.param); });

TEST(GlooJoin, MissingRankIsNamedByEveryOther) {
  EXPECT_EQ(run_ranks("missing2", 4).statuses, (std::vector<int>{0, 0, 0, 0}));
}

TEST(GlooJoin, MissingRankZeroIsNamedByEveryOther) {
  EXPECT_EQ(run_ranks("missing0", 4).statuses, (std::vector<int>{0, 0, 0, 0}));
}

TEST(GlooJoin, OneRankNeedsNobody) {
  const auto transport = gloo_transport({});
  const auto group = transport->communicator("world", {0});
  int in = 7;
  int out = 0;
  group->all_gather(&in, &out, sizeof in)->wait();
  EXPECT_EQ(out, 7);
}

TEST(Heartbeat, KilledRankIsNamedByAllSurvivors) {
  constexpr int kKilled = 128 + SIGKILL;
  EXPECT_EQ(run_ranks("killed3", 4).statuses, (std::vector<int>{103, 103, 103, kKilled}));
  EXPECT_EQ(run_ranks("killed1", 4).statuses, (std::vector<int>{101, kKilled, 101, 101}));
  EXPECT_EQ(run_ranks("killed0", 4).statuses, (std::vector<int>{kKilled, 100, 100, 100}));
}

TEST(Heartbeat, FrozenRankIsNamedForItsSilence) {
  EXPECT_EQ(run_ranks("frozen", 4).statuses, (std::vector<int>{102, 102, 128 + SIGKILL, 102}));
}

}  // namespace
}  // namespace sluice::transport
