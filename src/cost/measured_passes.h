// A second assumption about gathers between nodes: what somebody measured, in place of what the clock says.
#pragma once

#include "cost/cost_model.h"
#include "strategy/strategy.h"

namespace sluice::cost {

// FlexSP's own measurement of what a micro-batch takes besides its computation and all-to-alls, ZeRO's
// collectives above all: β of its released cost model, for LLaMA 7B, 13B and 30B on eight nodes of eight
// A100; for other models that of the nearest in proportion to the parameters.
int64_t measured_pass_ns(const model::Shape& shape);
// The same machine, on which each pass whose share groups lie on several nodes takes that much more.
CostModel with_measured_passes(const CostModel& cost);
// Whether the pipeline has such share groups, and any pipeline of the strategy.
bool gathers_between_nodes(const strategy::Pipeline& pipeline, const strategy::Topology& topology);
bool gathers_between_nodes(const strategy::Strategy& strategy, const strategy::Topology& topology);

}  // namespace sluice::cost
