// Clusters whose devices differ: candidates of which each pipeline lies on one kind.
#pragma once

#include <vector>

#include "session/candidates.h"
#include "strategy/strategy.h"

namespace sluice::session {

// Neighbouring ranks on equal devices.
struct DeviceRun {
  base::Interval ranks;
  strategy::Device device;
};
std::vector<DeviceRun> runs_of(const std::vector<strategy::Device>& devices);

// For each run proposals for what it can do of the sample batches in the time of all, in its memory; then
// these joined, the best of each first, at most max_strategies. Some run holds the context, and the others as
// long sequences as they do. REQUIRES: devices and sample batches. Throws as propose.
std::vector<strategy::Strategy> strategies_by_device(const PlanningTask& task);

// InputError naming the strategy, the pipeline and its devices when one lies on several kinds.
void check_devices(const std::vector<strategy::Strategy>& candidates,
                   const std::vector<strategy::Device>& devices);

}  // namespace sluice::session
