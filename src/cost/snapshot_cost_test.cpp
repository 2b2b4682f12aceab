#include "cost/snapshot_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost/test_model.h"

namespace sluice::cost {
namespace {

using ::testing::HasSubstr;

CostModel::Options snapshot_options() {
  CostModel::Options options = tiny_options();
  options.memory.element_bytes = 2;
  options.topology = {4, 2};
  options.intra = {.latency_ns = 10, .bytes_per_s = 1'000'000'000};
  options.inter = {.latency_ns = 20, .bytes_per_s = 500'000'000};
  options.host = {0, 2'000'000'000};
  return options;
}

// Five layers of 30,848 parameters (test_model.h), embedding and head of 6,400, the last norm's 64.
constexpr int64_t kParameters = 5 * 30'848 + 2 * 6'400 + 64;

TEST(SnapshotCost, CopiesMasterAndMomentsOfARanksShare) {
  const SnapshotCost snapshots = snapshot_cost(CostModel(snapshot_options()), 4);
  EXPECT_EQ(snapshots.slice_bytes, 12 * kParameters / 4);
  EXPECT_EQ(snapshots.host_bytes, 48 * kParameters / 4);
  EXPECT_EQ(snapshots.time_ns, snapshots.slice_bytes / 2 + 10 + snapshots.slice_bytes)
      << "to host memory at 2 bytes a nanosecond, inside the node at 1";
}

TEST(SnapshotCost, HasNothingOfWhatIsFrozen) {
  CostModel::Options options = snapshot_options();
  options.model = tiny_options_with_frozen_start().model;
  options.kinds_by_tp = tiny_options_with_frozen_start().kinds_by_tp;
  EXPECT_EQ(snapshot_cost(CostModel(options), 4).slice_bytes, 12 * (kParameters - 2 * 30'848 - 6'400) / 4);
}

TEST(SnapshotCost, BetweenNodesRanksShareAnAdapter) {
  const SnapshotCost snapshots = snapshot_cost(CostModel(snapshot_options()), 8);
  EXPECT_EQ(snapshots.slice_bytes, 12 * kParameters / 8);
  EXPECT_EQ(snapshots.time_ns, snapshots.slice_bytes / 2 + 20 + 2 * 2 * snapshots.slice_bytes);
}

TEST(SnapshotCost, IsSpreadOverSoManyStepsThatItTakesAHundredth) {
  EXPECT_EQ(steps_between_snapshots(0, 1000), 1);
  EXPECT_EQ(steps_between_snapshots(1000, 1000), 101);
  EXPECT_EQ(steps_between_snapshots(10, 1000), 2);
  // A snapshot of 20 and a step of 100 allow 21 steps at most; a loss each 1,000,000 asks for √(2·20·10^6) =
  // 6,324.
  EXPECT_EQ(steps_between_snapshots(20, 100, 0), 21);
  EXPECT_EQ(steps_between_snapshots(20, 100, 1'000'000), 21);
  EXPECT_EQ(steps_between_snapshots(20, 100, 40'000), 12);
  EXPECT_EQ(steps_between_snapshots(20, 100, 1), 1);
  const SnapshotCost snapshots{.slice_bytes = 1 << 20, .host_bytes = 4 << 20, .time_ns = 1'000'000};
  EXPECT_THAT(describe_snapshots(snapshots, 0, 100'000'000), HasSubstr("every 2 steps"));
  EXPECT_THAT(describe_snapshots(snapshots, 1, 100'000'000), HasSubstr("every step (1.00 ms)"));
  EXPECT_THAT(describe_snapshots(snapshots, 1, 100'000'000), HasSubstr("4.00 MiB of host memory a rank"));
}

}  // namespace
}  // namespace sluice::cost
