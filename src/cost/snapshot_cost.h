// What it takes that a run goes on when a rank is lost: copies of owner slices in host memory, made every few
// steps.
#pragma once

#include <cstdint>
#include <string>

#include "cost/cost_model.h"
#include "strategy/wire_codec.h"

namespace sluice::cost {

// A rank's own slices and its buddy's, each twice: the snapshot that is being made never is the newest whole
// one.
inline constexpr int64_t kSnapshotCopies = 4;
// The numbers that an owner keeps of a parameter: its master, and both moments of one that is trained.
constexpr int64_t owner_numbers(bool trained) { return trained ? 3 : 1; }
// And those that a snapshot has besides: where parameters are pulled by differences, what they have come to.
constexpr int64_t followed_numbers(bool trained, strategy::PullCodec pull) {
  return trained && strategy::is_difference(pull) ? 1 : 0;
}

struct SnapshotCost {
  int64_t slice_bytes =
      0;  // one copy of a rank's slices, which its buddy gets: 12 bytes a trained parameter over the ranks
  int64_t host_bytes = 0;  // of a rank
  int64_t time_ns = 0;     // of one snapshot, beside the next step's work: to host memory and to the buddy
};

// On `ranks` > 1 ranks, whose buddies are on another node where there are several. The figures are estimates:
// bytes within rounding of what run/snapshot_replicas.h copies, times without hashing them.
SnapshotCost snapshot_cost(const CostModel& cost, int ranks);

// So many steps apart that snapshots, each at a cost of `snapshot_ns`, are a hundredth of the time; fewer
// where ranks are lost so often, `mtbf_ns` apart (0: none was yet), that repeating steps would cost
// more than snapshots: √(2 · snapshot · between losses) of time (J. W. Young, A first order approximation to
// the optimum checkpoint interval, 1974).
int64_t steps_between_snapshots(int64_t snapshot_ns, int64_t step_ns, int64_t between_losses_ns = 0);

// "11.7 MiB of each rank to its buddy every 3 steps (2.1 ms), 46.8 MiB of host memory a rank". `every` as
// elastic.snapshot_every: 0 for what costs decide.
std::string describe_snapshots(const SnapshotCost& snapshots, int64_t every, int64_t step_ns);

}  // namespace sluice::cost
