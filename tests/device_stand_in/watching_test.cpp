// A device's ranks see for whom they wait: waits inside cells come from events on its streams, and the nodes
// that it runs are not those that the host is issuing.
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "cluster.h"
#include "runtime/test_features.h"

namespace sluice::stand_in {
namespace {

using runtime::RunOptions;
using runtime::StepResult;
using runtime::WaitCause;

constexpr int kRanks = 4;
constexpr int kSlow = 2;

struct Watched {
  std::vector<double> own_ns = std::vector<double>(kRanks);  // by rank: computation without waits
  std::vector<runtime::Waits> waits = std::vector<runtime::Waits>(kRanks);
  std::vector<int64_t> exposed_ns = std::vector<int64_t>(kRanks);  // for FSDP
};

// Steps of four ranks on devices of which one takes three times as long for each launch.
Watched with_a_slow_rank(const std::string& strategy) {
  Watched watched;
  std::mutex mutex;
  RunOptions options = runtime::short_run(kRanks, {strategy});
  options.steps = 2;
  options.behind_step = [&](runtime::Engine& engine, const graph::StepGraph&, const StepResult& result) {
    const std::lock_guard lock(mutex);
    const auto rank = static_cast<size_t>(engine.rank());
    watched.own_ns[rank] += static_cast<double>(result.own.cells().measured_ns);
    watched.waits[rank] += result.waits;
    watched.exposed_ns[rank] += result.fsdp_exposed_ns;
  };
  Devices devices;
  for (int rank = 0; rank < kRanks; ++rank) devices.launch_ns[rank] = rank == kSlow ? 3000 : 1000;
  const DeviceRun run = run_on_stand_ins(options, devices);
  EXPECT_TRUE(run.faults.empty()) << text_of(run.faults);
  return watched;
}

// The members of a group launch equally often.
TEST(Watching, ASlowRankOfATensorGroupIsSeenThroughTheWaitsOfTheOthers) {
  constexpr size_t kOther = 3;  // of its group
  const Watched watched = with_a_slow_rank("2x<2,1,1>");
  EXPECT_NEAR(watched.own_ns[kSlow] / watched.own_ns[kOther], 3.0, 0.3);
  EXPECT_GT(watched.waits[kOther][WaitCause::kTensor], watched.waits[kSlow][WaitCause::kTensor]);
}

TEST(Watching, ASlowRankOfAShareGroupIsSeenAndItsTransfersAreExposed) {
  const Watched watched = with_a_slow_rank("<1,1,4,4>");
  for (size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(watched.exposed_ns[rank], watched.waits[rank][WaitCause::kFsdp]);
    if (rank == kSlow) continue;
    EXPECT_GT(watched.own_ns[kSlow] / watched.own_ns[rank], 1.5) << rank;
    EXPECT_GT(watched.exposed_ns[rank], 0) << rank;
  }
}

TEST(Watching, LanesWaitForASlowLane) {
  const Watched watched = with_a_slow_rank("<1,1,4>");
  int64_t others = 0;
  for (size_t rank = 0; rank < kRanks; ++rank)
    others += rank == kSlow ? 0 : watched.waits[rank][WaitCause::kLanes];
  EXPECT_GT(others, 0);
}

// The host issues a lone cell while its device still waits for rows of the stage before: the watch names that
// transfer, so that nobody takes the rank for a stuck one.
TEST(Watching, TheNodeThatADeviceRunsIsNotTheOneThatTheHostIssues) {
  std::atomic<int> behind = 0;
  RunOptions options = runtime::short_run(2, {"<1,2,1>"});
  options.steps = 2;
  Devices devices;
  devices.mutation = [&](const Ordering& ordering) {
    if (ordering.kind != Ordering::Kind::kRecord) return false;
    const auto any = [](const auto& streams, const auto& wanted) {
      return std::ranges::any_of(streams, wanted);
    };
    const auto issues_lone_cell = [](const runtime::BusyStream& stream) {
      return stream.serial != 0 && stream.alone && graph::is_compute_cell(stream.kind);
    };
    const auto waits = [](const runtime::BusyStream& stream) { return stream.serial != 0 && !stream.alone; };
    const runtime::NodeWatch& watch =
        checker(c10::impl::VirtualGuardImpl(c10::kPrivateUse1).getDevice().index()).watch();
    if (any(watch.issued(), issues_lone_cell) && any(watch.busy(), waits)) ++behind;
    return false;
  };
  const DeviceRun run = run_on_stand_ins(options, devices);
  EXPECT_TRUE(run.faults.empty()) << text_of(run.faults);
  EXPECT_GT(behind, 0);
}

}  // namespace
}  // namespace sluice::stand_in
