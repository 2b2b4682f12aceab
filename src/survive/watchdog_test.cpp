#include "survive/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace sluice::survive {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

graph::Node node_of(graph::NodeKind kind, std::vector<int> members, int64_t planned_ns) {
  graph::Node node;
  node.kind = kind;
  node.members = std::move(members);
  graph::PassOnStage at;
  at.stage = 1;
  at.micro_batch = 7;
  switch (graph::traits(kind).payload) {
    case graph::PayloadKind::kLinkRound: node.payload = graph::LinkRound{}; break;
    case graph::PayloadKind::kTransfer: node.payload = graph::Transfer{at}; break;
    case graph::PayloadKind::kCell: node.payload = graph::Cell{at}; break;
    default: break;
  }
  node.duration_ns = planned_ns;
  return node;
}

// The watchdog's report about a rank in this state that makes no progress.
std::string verdict(const Activity& activity, const runtime::NodeWatch& nodes, WatchdogOptions options) {
  std::promise<std::string> said;
  options.look_ns = 1'000'000;
  options.on_stall = [&](const std::string& text) { said.set_value(text); };
  const Watchdog watchdog(activity, nodes, options);
  return said.get_future().get();
}

WorkDone none() { return {}; }

std::string verdict(const runtime::NodeWatch& nodes, int64_t stall_ns,
                    std::function<WorkDone()> work_done = &none) {
  Activity activity;
  const auto running = activity.nodes("running step 41");
  return verdict(activity, nodes, {.stall_ns = stall_ns, .work_done = std::move(work_done)});
}

TEST(Watchdog, NodeThatNeverEndsIsNamed) {
  runtime::NodeWatch nodes;
  nodes.begin(graph::Stream::kCompute, node_of(graph::NodeKind::kBackward, {2}, 0), 41);
  EXPECT_THAT(verdict(nodes, 20'000'000),
              AllOf(HasSubstr("it is stuck in 'backward' of stage 1, micro-batch 7 in step 41"),
                    HasSubstr("for 10.00 ms now")));
}

// A shared machine or inaccurate costs: the rank is slow, not stuck.
TEST(Watchdog, NodeThatComputesIsGivenTenTimesAsLong) {
  runtime::NodeWatch nodes;
  nodes.begin(graph::Stream::kCompute, node_of(graph::NodeKind::kBackward, {2}, 0), 41);
  WorkDone done;
  const auto computing = [&] {
    done.computed_ns += 1'000'000;
    return done;
  };
  EXPECT_THAT(verdict(nodes, 20'000'000, computing), HasSubstr("for 100.00 ms now"));
}

// A waiting rank gets twice as long, so that a rank stuck in a node of its own reports first.
TEST(Watchdog, NodeThatWaitsForOthersIsNamedAsSuch) {
  runtime::NodeWatch nodes;
  nodes.begin(graph::Stream::kLinkInter, node_of(graph::NodeKind::kPullInter, {0, 1}, 0), 3);
  EXPECT_THAT(verdict(nodes, 20'000'000),
              AllOf(HasSubstr("it waits for other ranks in "), HasSubstr("for 20.00 ms now")));
}

TEST(Watchdog, LongPlansAreGivenTheirTime) {
  runtime::NodeWatch nodes;
  nodes.begin(graph::Stream::kCompute, node_of(graph::NodeKind::kForward, {2}, 3'000'000), 0);
  EXPECT_THAT(verdict(nodes, 20'000'000), HasSubstr("40.00 ms now where 3.00 ms were planned"));
}

// Nodes that begin and end, and streams without a node, are progress, however long that takes.
TEST(Watchdog, ProgressIsNoStall) {
  runtime::NodeWatch nodes;
  std::atomic<int> stalls = 0;
  Activity activity;
  const auto running = activity.nodes("running step 0");
  const Watchdog watchdog(
      activity, nodes,
      {.stall_ns = 3'600'000'000'000, .look_ns = 100'000, .on_stall = [&](const std::string&) { ++stalls; }});
  for (int i = 0; i < 1000; ++i) {
    nodes.begin(graph::Stream::kCompute, node_of(graph::NodeKind::kForward, {2}, 0), i);
    nodes.end(graph::Stream::kCompute);
  }
  EXPECT_EQ(stalls, 0);
}

TEST(Watchdog, NodeThatEndsStartsTheCountAnew) {
  runtime::NodeWatch nodes;
  nodes.begin(graph::Stream::kCompute, node_of(graph::NodeKind::kForward, {2}, 0), 0);
  nodes.end(graph::Stream::kCompute);
  EXPECT_EQ(nodes.busy()[static_cast<size_t>(graph::Stream::kCompute)].serial, 0);
  nodes.begin(graph::Stream::kCompute, node_of(graph::NodeKind::kForward, {2}, 0), 1);
  EXPECT_EQ(nodes.busy()[static_cast<size_t>(graph::Stream::kCompute)].serial, 2);
}

TEST(Watchdog, WorkOutsideOfNodesIsNamed) {
  const runtime::NodeWatch nodes;
  Activity activity;
  const auto saving = activity.own("committing the checkpoint");
  EXPECT_EQ(verdict(activity, nodes, {.stall_ns = 20'000'000, .work_done = &none}),
            "it is stuck while committing the checkpoint, for 20.00 ms now");
}

TEST(Watchdog, InnermostWorkIsNamedAndWhoWaitsSaysSo) {
  const runtime::NodeWatch nodes;
  Activity activity;
  const auto evaluating = activity.own("evaluating after step 3");
  { const auto planning = activity.own("planning the evaluation"); }
  const auto waiting = activity.waiting();
  EXPECT_THAT(verdict(activity, nodes, {.stall_ns = 20'000'000, .work_done = &none}),
              HasSubstr("it waits for other ranks while evaluating after step 3"));
}

// A stream's thread was stopped after its last node: no node runs that could be reported.
TEST(Watchdog, StepWithoutANodeUnderWayIsTheRanksOwn) {
  runtime::NodeWatch nodes;
  Activity activity;
  const auto running = activity.nodes("running step 7");
  nodes.begin(graph::Stream::kCompute, node_of(graph::NodeKind::kForward, {2}, 0), 7);
  nodes.end(graph::Stream::kCompute);
  EXPECT_THAT(verdict(activity, nodes, {.stall_ns = 20'000'000, .work_done = &none}),
              HasSubstr("it is stuck while running step 7"));
}

// Looks are counted, not timed: 20 looks are a stall for an idle process, ten times as many for one that
// computes.
TEST(Watchdog, ComputingCountsATenthAndDisksThatMoveCountNothing) {
  const runtime::NodeWatch nodes;
  Activity activity;
  const auto planning = activity.own("planning");
  WorkDone computes;
  EXPECT_THAT(verdict(activity, nodes,
                      {.stall_ns = 20'000'000,
                       .work_done =
                           [&] {
                             computes.computed_ns += 1'000'000;
                             return computes;
                           }}),
              HasSubstr("for 200.00 ms now"));
  int looks = 0;
  WorkDone moves;
  EXPECT_THAT(verdict(activity, nodes,
                      {.stall_ns = 20'000'000,
                       .work_done =
                           [&] {
                             if (++looks <= 100) ++moves.transfers;
                             return moves;
                           }}),
              HasSubstr("for 20.00 ms now"));
  EXPECT_GE(looks, 120);
}

TEST(Watchdog, WaitingForWhoIsAtWorkIsNoStall) {
  runtime::NodeWatch nodes;
  const runtime::NodeWatch idle;
  nodes.begin(graph::Stream::kLinkInter, node_of(graph::NodeKind::kPullInter, {0, 1}, 0), 3);
  for (const bool in_node : {true, false}) {
    Activity activity;
    const auto doing = in_node ? activity.nodes("running step 3") : activity.shared("leaving");
    int asked = 0;
    const auto working = [&] { return ++asked <= 100; };
    EXPECT_THAT(verdict(activity, in_node ? nodes : idle,
                        {.stall_ns = 20'000'000, .others_at_own_work = working, .work_done = &none}),
                HasSubstr("it waits for other ranks"));
    EXPECT_GE(asked, 120);
  }
}

TEST(Watchdog, WhoWatchesAndComesOnIsLeftAlone) {
  const runtime::NodeWatch nodes;
  Activity activity;
  const auto taking = activity.own("taking the run directory");
  std::atomic<int> stalls = 0;
  const Watchdog watchdog(activity, nodes,
                          {.stall_ns = 3'600'000'000'000,
                           .look_ns = 100'000,
                           .work_done = &none,
                           .on_stall = [&](const std::string&) { ++stalls; }});
  for (int i = 0; i < 1000; ++i) activity.advance();
  EXPECT_EQ(stalls, 0);
}

TEST(Watchdog, OwnWorkIsWhatOthersWaitFor) {
  runtime::NodeWatch nodes;
  Activity activity;
  EXPECT_TRUE(at_own_work(activity, nodes));
  {
    const auto waiting = activity.waiting();
    EXPECT_FALSE(at_own_work(activity, nodes));
  }
  const auto running = activity.nodes("running step 3");
  EXPECT_TRUE(at_own_work(activity, nodes));
  nodes.begin(graph::Stream::kLinkInter, node_of(graph::NodeKind::kPullInter, {0, 1}, 0), 3);
  EXPECT_FALSE(at_own_work(activity, nodes));
  nodes.begin(graph::Stream::kCompute, node_of(graph::NodeKind::kForward, {2}, 0), 3);
  EXPECT_TRUE(at_own_work(activity, nodes));
}

}  // namespace
}  // namespace sluice::survive
