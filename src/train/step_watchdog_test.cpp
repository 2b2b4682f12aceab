#include "train/step_watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace sluice::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

graph::Node node_of(graph::NodeKind kind, std::vector<int> members, int64_t planned_ns) {
  graph::Node node;
  node.kind = kind;
  node.members = std::move(members);
  node.stage = 1;
  node.micro_batch = 7;
  node.duration_ns = planned_ns;
  return node;
}

// What the watchdog says of a rank that is busy so and makes no progress.
std::string verdict(const runtime::NodeWatch& nodes, int64_t stall_ns) {
  std::promise<std::string> said;
  const StepWatchdog watchdog(nodes, {.stall_ns = stall_ns,
                                      .look_ns = 1'000'000,
                                      .on_stall = [&](const std::string& text) { said.set_value(text); }});
  return said.get_future().get();
}

TEST(StepWatchdog, NodeThatNeverEndsIsNamed) {
  runtime::NodeWatch nodes;
  nodes.begin(graph::Stream::kCompute, node_of(graph::NodeKind::kBackward, {2}, 0), 41);
  EXPECT_THAT(verdict(nodes, 20'000'000),
              AllOf(HasSubstr("it is stuck in 'backward' of stage 1, micro-batch 7 in step 41"),
                    HasSubstr("for 10.00 ms now")));
}

// It waits twice as long: the rank that is stuck in a node of its own says so first.
TEST(StepWatchdog, NodeThatWaitsForOthersIsNamedAsSuch) {
  runtime::NodeWatch nodes;
  nodes.begin(graph::Stream::kLinkInter, node_of(graph::NodeKind::kPullInter, {0, 1}, 0), 3);
  EXPECT_THAT(verdict(nodes, 20'000'000),
              AllOf(HasSubstr("it waits for other ranks in "), HasSubstr("for 20.00 ms now")));
}

TEST(StepWatchdog, LongPlansAreGivenTheirTime) {
  runtime::NodeWatch nodes;
  nodes.begin(graph::Stream::kCompute, node_of(graph::NodeKind::kForward, {2}, 3'000'000), 0);
  EXPECT_THAT(verdict(nodes, 20'000'000), HasSubstr("40.00 ms now where 3.00 ms were planned"));
}

// Nodes that begin and end, and streams without one, are progress however long it lasts.
TEST(StepWatchdog, ProgressIsNoStall) {
  runtime::NodeWatch nodes;
  std::atomic<int> stalls = 0;
  const StepWatchdog watchdog(
      nodes,
      {.stall_ns = 3'600'000'000'000, .look_ns = 100'000, .on_stall = [&](const std::string&) { ++stalls; }});
  for (int i = 0; i < 1000; ++i) {
    nodes.begin(graph::Stream::kCompute, node_of(graph::NodeKind::kForward, {2}, 0), i);
    nodes.end(graph::Stream::kCompute);
  }
  EXPECT_EQ(stalls, 0);
}

TEST(StepWatchdog, NodeThatEndsStartsTheCountAnew) {
  runtime::NodeWatch nodes;
  nodes.begin(graph::Stream::kCompute, node_of(graph::NodeKind::kForward, {2}, 0), 0);
  nodes.end(graph::Stream::kCompute);
  EXPECT_EQ(nodes.busy()[static_cast<size_t>(graph::Stream::kCompute)].serial, 0);
  nodes.begin(graph::Stream::kCompute, node_of(graph::NodeKind::kForward, {2}, 0), 1);
  EXPECT_EQ(nodes.busy()[static_cast<size_t>(graph::Stream::kCompute)].serial, 2);
}

}  // namespace
}  // namespace sluice::train
