// Clusters whose devices differ: candidates of which each pipeline lies on one kind.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/interval.h"
#include "plan/proposal.h"
#include "session/planning_task.h"
#include "strategy/strategy.h"

namespace sluice::session {

// Neighbouring ranks whose devices compute alike, and the smallest memory that one of them has: more of it is
// worth less than one copy of the model over all.
struct DeviceRun {
  base::Interval ranks;
  strategy::Device device;
};
std::vector<DeviceRun> runs_of(const std::vector<strategy::Device>& devices);
// "100 % on rank 0, 205 % on ranks 1 to 3".
std::string to_text(const std::vector<DeviceRun>& runs);

// As session::propose.
using Propose = std::function<std::vector<plan::Proposal>(const PlanningTask& task)>;

// For each run proposals for what it can do of the sample batches in the time of all, in its memory; then
// these joined, the best of each first, at most max_strategies. Some run holds the context, and the others as
// long sequences as they do. REQUIRES: devices and sample batches. Throws as propose.
std::vector<strategy::Strategy> strategies_by_device(const PlanningTask& task, const Propose& propose);

// InputError naming the strategy, the pipeline and two of its ranks when these don't compute alike.
void check_devices(const std::vector<strategy::Strategy>& candidates,
                   const std::vector<strategy::Device>& devices);

}  // namespace sluice::session
