// HotSPa: two to four homogeneous strategies, one for each interval of lengths, run one after another within
// a step, the longest sequences first. Gradients accumulate over all of them.
//
// Intervals end at 4K, 16K and 64K tokens and at the context, as in the published evaluation (Hydraulis,
// appendix G); which of those ends are used, each interval's <TP, PP> and the size of its micro-batches are
// the best by enumeration, switches included. No lanes: where Megatron-LM takes CP2 its published choice is
// TP16. First-fit decreasing makes micro-batches, dealt in turns; plain 1F1B.
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

// Sequences longer than the next phase's `longest`, up to this one's, and how they are run.
struct HotSpaPhase {
  int64_t longest = 0;
  published::StaticStrategy choice;
};
// With phases that are given, the longest first. REQUIRES: some; each holds its longest.
std::unique_ptr<System> make_hotspa(const SystemInputs& inputs, const std::vector<HotSpaPhase>& phases);

// How long parameters and accumulated gradients take from one compute layout to another's, in the two levels
// of a link (link/route.h): a node takes what none of its ranks holds in once, over all its adapters, from
// all nodes that hold it in equal parts; then each rank receives what it did not hold from its node. The
// busiest adapter and the busiest rank count. 0 for equal strategies. The way back to the first strategy is
// the next step's pull.
int64_t switch_ns(const model::ParameterTable& table, const strategy::Strategy& from,
                  const strategy::Strategy& to, int world_size, const cost::CostModel& cost);

}  // namespace sluice::study
