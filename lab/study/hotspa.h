// HotSPa: two to four homogeneous strategies, one for each interval of lengths. They run one after another
// within a step, the longest sequences first. Gradients accumulate over all of them.
//
// Intervals end at 4K, 16K and 64K tokens and at the context, as in the published evaluation (Hydraulis,
// appendix G). The used ends, each interval's <TP, PP> and its micro-batch size are the best by enumeration,
// switches included. There are no lanes: where Megatron-LM takes CP2, HotSPa's published choice is TP16.
// First-fit decreasing makes micro-batches, dealt round robin; plain 1F1B.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cost/cost_model.h"
#include "model/parameters.h"
#include "published/static_strategy.h"
#include "strategy/strategy.h"
#include "study/system.h"

namespace sluice::study {

std::unique_ptr<System> make_hotspa(const SystemInputs& inputs);

// A strategy for sequences longer than the next phase's `longest`, up to this phase's.
struct HotSpaPhase {
  int64_t longest = 0;
  published::StaticStrategy choice;
};
// With the given phases, the longest first. REQUIRES: at least one; each holds its longest.
std::unique_ptr<System> make_hotspa(const SystemInputs& inputs, const std::vector<HotSpaPhase>& phases);

// The time of moving parameters and accumulated gradients from one compute layout to another, on the two
// levels of a link (link/route.h). A node receives what none of its ranks holds once, over all its adapters,
// in equal parts from all nodes that hold it. Then each rank receives its missing part from its node. The
// busiest adapter and the busiest rank determine the time; 0 for equal strategies. The way back to the first
// strategy is the next step's pull.
int64_t switch_ns(const model::ParameterTable& table, const strategy::Strategy& from,
                  const strategy::Strategy& to, int world_size, const cost::CostModel& cost);

}  // namespace sluice::study
