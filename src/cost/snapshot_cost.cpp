#include "cost/snapshot_cost.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "cost/parameter_counts.h"

namespace sluice::cost {

SnapshotCost snapshot_cost(const CostModel& cost, int ranks) {
  const CostModel::Options& options = cost.options();
  const ParameterCount parameters = all_parameters(cost.program(), options.memory);
  const int64_t number_bytes = std::max<int64_t>(4, options.memory.element_bytes);
  // Frozen parameters are in no snapshot.
  const int64_t numbers = owner_numbers(true) + followed_numbers(true, options.codecs.pull);
  const int64_t all_bytes = numbers * parameters.trained * number_bytes;
  SnapshotCost snapshots;
  snapshots.slice_bytes = (all_bytes + ranks - 1) / ranks;
  snapshots.host_bytes = kSnapshotCopies * snapshots.slice_bytes;
  const int level = options.topology.level_of_first(ranks);
  // Ranks that share a network adapter send at once.
  const int64_t sent_at_once = level == 0 ? 1 : options.topology.nic_ranks();
  snapshots.time_ns = options.host.of_bytes(snapshots.slice_bytes) +
                      options.link(level).of_bytes(sent_at_once * snapshots.slice_bytes);
  return snapshots;
}

int64_t steps_between_snapshots(int64_t snapshot_ns, int64_t step_ns, int64_t between_losses_ns) {
  constexpr int64_t kSteps = 100;  // steps over which one snapshot's time may be spread
  const int64_t one_step_ns = std::max<int64_t>(1, step_ns);
  const int64_t most = 1 + kSteps * snapshot_ns / one_step_ns;
  if (between_losses_ns == 0) return most;
  const double best_ns =
      std::sqrt(2.0 * static_cast<double>(snapshot_ns) * static_cast<double>(between_losses_ns));
  return std::clamp<int64_t>(static_cast<int64_t>(best_ns) / one_step_ns, 1, most);
}

std::string describe_snapshots(const SnapshotCost& snapshots, int64_t every, int64_t step_ns) {
  const int64_t apart = every > 0 ? every : steps_between_snapshots(snapshots.time_ns, step_ns);
  return base::text(base::human_bytes(static_cast<double>(snapshots.slice_bytes)),
                    " of each rank to its replica every ", apart == 1 ? "step" : base::text(apart, " steps"),
                    " (", base::human_duration(snapshots.time_ns), "), ",
                    base::human_bytes(static_cast<double>(snapshots.host_bytes)), " of host memory a rank");
}

}  // namespace sluice::cost
