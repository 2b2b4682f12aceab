#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/rng.h"
#include "comm/test_virtual_time.h"

namespace sluice::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Two ranks: a rendezvous waits for the later one, and streams of a rank run concurrently.
TEST(VirtualTime, RendezvousStartsWhenTheLastMemberIsReady) {
  const VirtualProgram program{
      .events = {{{0}, kNoCommunicator, 10, "a"},
                 {{1}, kNoCommunicator, 30, "b"},
                 {{0, 1}, 0, 5, "send"},
                 {{0}, kNoCommunicator, 7, "c"},
                 {{1}, kNoCommunicator, 1, "d"}},
      .ranks = {{{0, 0, {}}, {2, 1, {0}}, {3, 0, {}}}, {{1, 0, {}}, {2, 1, {1}}, {4, 0, {2}}}}};
  const VirtualResult result = run_virtually(program, {});
  EXPECT_EQ(result.deadlock, "");
  EXPECT_EQ(result.start_ns, (std::vector<int64_t>{0, 0, 30, 10, 35}));
  EXPECT_EQ(result.end_ns, (std::vector<int64_t>{10, 30, 35, 17, 36}));
  EXPECT_EQ(result.makespan_ns, 36);
}

TEST(VirtualTime, CommunicatorRunsOneEventAtATimeThoughStreamsDiffer) {
  const VirtualProgram program{
      .events = {{{0, 1}, 3, 5, ""}, {{0, 1}, 3, 5, ""}, {{0, 1}, 4, 5, ""}},
      .ranks = {{{0, 0, {}}, {1, 1, {}}, {2, 2, {}}}, {{0, 0, {}}, {1, 1, {}}, {2, 2, {}}}}};
  const VirtualResult result = run_virtually(program, {});
  EXPECT_EQ(result.start_ns, (std::vector<int64_t>{0, 5, 0}));
}

TEST(VirtualTime, OppositeOrdersOnOneStreamAreReportedAsACycle) {
  const VirtualProgram program{.events = {{{0, 1}, 0, 5, "pull"}, {{0, 1}, 1, 5, "push"}},
                               .ranks = {{{0, 0, {}}, {1, 0, {}}}, {{1, 0, {}}, {0, 0, {}}}}};
  const VirtualResult result = run_virtually(program, {});
  EXPECT_THAT(
      result.deadlock,
      AllOf(
          HasSubstr("rank 0 stream 0: event 1 'push' waits for event 0 'pull' (ahead of it on that stream)"),
          HasSubstr("rank 1 stream 0: event 0 'pull' waits for event 1 'push'")));
  EXPECT_EQ(result.start_ns[0], -1);
}

TEST(VirtualTime, CycleOverACommunicatorAndADependencyIsReported) {
  const VirtualProgram program{.events = {{{0, 1}, 7, 5, "first"}, {{0, 1}, 7, 5, "second"}},
                               .ranks = {{{0, 0, {}}, {1, 1, {}}}, {{0, 0, {1}}, {1, 1, {}}}}};
  const VirtualResult result = run_virtually(program, {});
  EXPECT_THAT(result.deadlock,
              AllOf(HasSubstr("(ahead of it on communicator 7)"), HasSubstr("(its dependency)")));
}

TEST(VirtualTime, EventsOutsideTheCycleStillRun) {
  const VirtualProgram program{
      .events = {{{0}, kNoCommunicator, 5, ""}, {{0, 1}, 0, 5, ""}, {{0, 1}, 1, 5, ""}},
      .ranks = {{{0, 0, {}}, {1, 0, {}}, {2, 0, {}}}, {{2, 0, {}}, {1, 0, {}}}}};
  const VirtualResult result = run_virtually(program, {});
  EXPECT_EQ(result.end_ns[0], 5);
  EXPECT_NE(result.deadlock, "");
}

TEST(VirtualTime, EventThatAMemberNeverIssuesIsOurMistake) {
  const VirtualProgram program{.events = {{{0, 1}, 0, 5, ""}}, .ranks = {{{0, 0, {}}}, {}}};
  EXPECT_THROW(run_virtually(program, {}), base::AssertionError);
}

// A random program: events in one global order, then `shuffled` swaps of neighbours on some ranks.
VirtualProgram random_program(uint64_t seed, int events, int shuffled) {
  base::Rng rng(seed);
  VirtualProgram program;
  program.ranks.resize(6);
  for (int event = 0; event < events; ++event) {
    VirtualEvent made{.members = {}, .communicator = kNoCommunicator, .duration_ns = rng.between(1, 100)};
    const int first = static_cast<int>(rng.below(6));
    const int count = static_cast<int>(rng.between(1, 3));
    for (int i = 0; i < count && first + i < 6; ++i) made.members.push_back(first + i);
    if (made.members.size() > 1) made.communicator = first * 3 + count;
    for (const int rank : made.members) {
      auto& issued = program.ranks[static_cast<size_t>(rank)];
      VirtualOperation operation{.event = event, .stream = static_cast<int>(rng.below(3))};
      if (!issued.empty()) operation.dependencies.push_back(issued[rng.below(issued.size())].event);
      issued.push_back(operation);
    }
    program.events.push_back(made);
  }
  for (int i = 0; i < shuffled; ++i) {
    auto& issued = program.ranks[rng.below(6)];
    if (issued.size() < 2) continue;
    const size_t at = rng.below(issued.size() - 1);
    std::swap(issued[at], issued[at + 1]);
  }
  return program;
}

// A slow reference: steps through time and starts every event that is at the head of all its queues.
std::map<int, int64_t> starts_by_stepping(const VirtualProgram& program) {
  std::map<int, int64_t> start;
  std::map<int, int64_t> end;
  std::map<std::pair<int, int>, bool> left;  // (rank, position): ended
  const auto ready = [&](int rank, const VirtualOperation& mine) {
    for (const VirtualOperation& other : program.ranks[static_cast<size_t>(rank)]) {
      if (other.event == mine.event) break;
      const int communicator = program.events[static_cast<size_t>(mine.event)].communicator;
      const bool ahead = other.stream == mine.stream ||
                         (communicator >= 0 &&
                          communicator == program.events[static_cast<size_t>(other.event)].communicator);
      if (ahead && !end.contains(other.event)) return false;
    }
    return std::all_of(mine.dependencies.begin(), mine.dependencies.end(),
                       [&](int event) { return end.contains(event); });
  };
  int64_t now = 0;
  while (true) {
    for (int event = 0; event < static_cast<int>(program.events.size()); ++event) {
      if (start.contains(event)) continue;
      bool all_ready = true;
      for (const int rank : program.events[static_cast<size_t>(event)].members) {
        for (const VirtualOperation& operation : program.ranks[static_cast<size_t>(rank)]) {
          if (operation.event == event) all_ready = all_ready && ready(rank, operation);
        }
      }
      if (all_ready) start[event] = now;
    }
    int64_t next = -1;
    for (const auto& [event, began] : start) {
      const int64_t ends = began + program.events[static_cast<size_t>(event)].duration_ns;
      if (!end.contains(event) && (next < 0 || ends < next)) next = ends;
    }
    if (next < 0) return start;
    now = next;
    for (const auto& [event, began] : start) {
      const int64_t ends = began + program.events[static_cast<size_t>(event)].duration_ns;
      if (ends == now) end[event] = now;
    }
  }
}

TEST(VirtualTime, EqualsSteppingThroughTime) {
  int deadlocks = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const VirtualProgram program = random_program(seed, 40, seed % 2 == 0 ? 0 : 4);
    const VirtualResult result = run_virtually(program, {});
    const std::map<int, int64_t> expected = starts_by_stepping(program);
    for (int event = 0; event < 40; ++event) {
      const auto found = expected.find(event);
      EXPECT_EQ(result.start_ns[static_cast<size_t>(event)], found == expected.end() ? -1 : found->second);
    }
    EXPECT_EQ(result.deadlock.empty(), expected.size() == 40);
    deadlocks += result.deadlock.empty() ? 0 : 1;
  }
  EXPECT_GT(deadlocks, 5);
}

TEST(VirtualTime, DelaysChangeTimesButNeverTheOutcome) {
  const VirtualProgram program = random_program(1, 2000, 0);
  const VirtualResult plain = run_virtually(program, {});
  const VirtualResult delayed = run_virtually(program, {.seed = 5, .max_delay_ns = 1000});
  EXPECT_EQ(delayed.deadlock, "");
  EXPECT_GT(delayed.makespan_ns, plain.makespan_ns);
  EXPECT_EQ(delayed.end_ns, run_virtually(program, {.seed = 5, .max_delay_ns = 1000}).end_ns);
}

}  // namespace
}  // namespace sluice::comm
