// The cost of continuing a run when a rank is lost: copies of owner slices in host memory, made every few
// steps.
#pragma once

#include <cstdint>
#include <string>

#include "cost/cost_model.h"
#include "strategy/wire_codec.h"

namespace sluice::cost {

// A rank's own slices and its buddy's, each twice, because a snapshot in the making never replaces the newest
// whole one.
inline constexpr int64_t kSnapshotCopies = 4;
// Numbers that an owner keeps for a parameter: its master, and both moments if it is trained.
constexpr int64_t owner_numbers(bool trained) { return trained ? 3 : 1; }
// Numbers that a snapshot adds if parameters are pulled by differences: the values that they have come to.
constexpr int64_t followed_numbers(bool trained, strategy::PullCodec pull) {
  return trained && strategy::is_difference(pull) ? 1 : 0;
}

struct SnapshotCost {
  int64_t slice_bytes =
      0;  // one copy of a rank's slices, which its buddy gets: 12 bytes a trained parameter over the ranks
  int64_t host_bytes = 0;  // a rank's
  int64_t time_ns = 0;     // one snapshot, beside the next step's work: to host memory and to the buddy
};

// For `ranks` > 1 ranks, with buddies on other nodes if there are several. The figures are estimates: bytes
// within rounding of what run/snapshot_replicas.h copies, times without hashing them.
SnapshotCost snapshot_cost(const CostModel& cost, int ranks);

// The number of steps between snapshots of `snapshot_ns` each, so that snapshots take a hundredth of the
// time. It is smaller if ranks are lost so often, `between_losses_ns` apart (0: no loss yet), that repeating
// steps would cost more than snapshots: √(2 · snapshot · between losses) of time (J. W. Young, A first order
// approximation to the optimum checkpoint interval, 1974).
int64_t steps_between_snapshots(int64_t snapshot_ns, int64_t step_ns, int64_t between_losses_ns = 0);

// "11.7 MiB of each rank to its buddy every 3 steps (2.1 ms), 46.8 MiB of host memory a rank". `every`: as
// elastic.snapshot_every; 0: as costs decide.
std::string describe_snapshots(const SnapshotCost& snapshots, int64_t every, int64_t step_ns);

}  // namespace sluice::cost
