// Clusters with different devices: candidates whose pipelines each lie on one kind of device.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/interval.h"
#include "cost/cost_model.h"
#include "plan/planner_options.h"
#include "strategy/strategy.h"

namespace sluice::session {

// Neighbouring ranks with equally fast devices, and the smallest memory of one of them. Larger memories are
// not used further, since one copy of the model over all ranks is worth more.
struct DeviceRun {
  base::Interval ranks;
  strategy::Device device;
};
std::vector<DeviceRun> runs_of(const std::vector<strategy::Device>& devices);
// "100 % on rank 0, 205 % on ranks 1 to 3".
std::string to_text(const std::vector<DeviceRun>& runs);

// As session::propose.
using Propose = std::function<std::vector<plan::Proposal>(const plan::PlannerOptions& options,
                                                          const cost::CostModel& cost)>;

// Proposes strategies for each run of ranks: for its share of the sample batches by speed, in its memory.
// Then joins the proposals, the best of each first, at most max_strategies. One run at least holds the
// context, the others shorter sequences. REQUIRES: devices and sample batches. Throws as propose.
std::vector<strategy::Strategy> strategies_by_device(const plan::PlannerOptions& options,
                                                     const cost::CostModel& cost, const Propose& propose);

// InputError naming the strategy, the pipeline and two of its ranks if they are not equally fast.
void check_devices(const std::vector<strategy::Strategy>& candidates,
                   const std::vector<strategy::Device>& devices);

}  // namespace sluice::session
