// A second assumption about all-gathers between nodes: a published measurement, not the clock's estimate.
#pragma once

#include "cost/cost_model.h"
#include "strategy/strategy.h"

namespace sluice::cost {

// FlexSP's own measurement of a micro-batch's time beside its computation and all-to-alls, above all ZeRO's
// collectives: β of its released cost model, for LLaMA 7B, 13B and 30B on eight nodes of eight A100. Other
// models take the nearest model's time, in proportion to the parameters.
int64_t measured_pass_ns(const model::Model& model);
// The same machine, on which each pass whose share groups lie on several nodes takes measured_pass_ns() more.
CostModel with_measured_passes(const CostModel& cost);
// Whether a share group of the pipeline, or of any pipeline of the strategy, lies on several nodes.
bool gathers_between_nodes(const strategy::Pipeline& pipeline, const strategy::Topology& topology);
bool gathers_between_nodes(const strategy::Strategy& strategy, const strategy::Topology& topology);

}  // namespace sluice::cost
