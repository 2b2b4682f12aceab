// How the programs of rivals differ from ours on the same machine, where their plans alone don't say it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "published/lane_groups.h"

namespace sluice::study {

// The same times in plain 1F1B: input and weight gradient in one cell.
cost::CostModel one_backward_cell(const cost::CostModel& cost);

// The backward runs a layer's forward again, with its exchange; a token keeps its input of each layer, and
// one layer's activations are transient.
cost::CostModel full_recompute(const cost::CostModel& cost);

// Who keeps what of parameters, gradients and optimiser states. kZero1: optimiser states are cut over all
// ranks (as ours always are). kZero2: gradients as well, summed in each micro-batch; parameters are gathered
// once a step, behind the update, where nothing hides it. kZero3: parameters as well, gathered in each pass.
// kHsdp: all three over the ranks of a node alone, which hold a copy of them between them.
enum class Sharding : uint8_t { kZero1, kZero2, kZero3, kHsdp };
const char* name_of(Sharding sharding);  // "ZeRO-1", …, "HSDP"

// A program whose stages' lanes share as said, on all ranks, and the costs of such a program: one backward
// cell, sums that go round a ring, and full recompute where asked. Where neighbouring lanes divide experts
// (`experts` above 1) they keep what they make of rows that travelled, and routing is as even, and the travel
// as well hidden, as ours is taken to be. REQUIRES: `experts` is of expert_degrees.
published::GroupProgram sharded_program(Sharding sharding, const strategy::Scheme& degrees,
                                        strategy::Exchange exchange, const cost::CostModel& cost,
                                        int world_size);
cost::CostModel sharded_cost(const cost::CostModel& cost, Sharding sharding, bool recompute, int world_size);

// By how many neighbouring lanes a program's experts may be divided: 1, and powers of two that divide lanes
// and experts.
std::vector<int> expert_degrees(const model::Shape& shape, int lanes);

// What gathering all parameters once takes, kZero2's before a step; else 0.
int64_t gather_once_ns(Sharding sharding, const published::GroupProgram& program,
                       const cost::CostModel& cost);

// Whether some pipeline at work gathers parameters between nodes (cost/measured_passes.h).
bool gathers_between_nodes(const strategy::StepPlan& plan, const strategy::Topology& topology);

}  // namespace sluice::study
