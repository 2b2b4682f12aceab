// Differences between rival programs and ours on the same machine that their plans do not express.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "published/lane_groups.h"

namespace sluice::study {

// Habits of other programs' passes that our runtime does not have.
struct RivalTraits {
  // The weight gradient is part of the backward cell, as in plain 1F1B.
  bool one_backward_cell = false;
  // The backward pass runs the layers' forward pass again.
  bool repeats_forward = false;
  // Reduce-scatters go round a ring of all lanes, each adding its own gradients, as all-gathers do. Gradients
  // cross each adapter once between nodes, but are summed in the ring's order.
  bool sums_in_ring = false;
  // Parameters are gathered once a step, outside passes, and stay whole (ZeRO-2).
  bool keeps_gathered = false;
  // Each lane holds whole all parameters that EP does not divide, and sums their gradients once, after all
  // passes (data parallelism with optimizer states sharded by ZeRO-1).
  bool holds_whole = false;
  // All activations of rows that travelled to experts stay until the backward, so the rows travel once.
  bool keeps_dispatched = false;
  // Rows travel to experts and back before and after their products, not beside other chunks' products.
  bool dispatch_waits = false;
};

// A cost model's traits, and the same costs for a program with other ones.
RivalTraits traits_of(const cost::CostModel& cost);
cost::CostModel with_traits(const cost::CostModel& cost, const RivalTraits& traits);

// The same costs for plain 1F1B: input and weight gradient in one cell.
cost::CostModel one_backward_cell(const cost::CostModel& cost);

// The backward runs a layer's forward again, with its exchange. A token keeps its input of each layer, and
// one layer's activations are transient.
cost::CostModel full_recompute(const cost::CostModel& cost);

// The sharding over ranks. Under kZero1, optimizer states are cut over all ranks (as ours always are). Under
// kZero2, gradients as well, summed in each micro-batch; parameters are gathered once a step, after the
// update, where nothing hides it. Under kZero3, parameters as well, gathered in each pass. Under kHsdp, all
// three over the ranks of a node alone, which together hold a copy.
enum class Sharding : uint8_t { kZero1, kZero2, kZero3, kHsdp };
const char* name_of(Sharding sharding);  // "ZeRO-1", …, "HSDP"

// A program whose stages' lanes share parameters by `sharding`, on all ranks. Its costs have one backward
// cell, sums that go round a ring, and full recompute if requested. If neighbouring lanes divide experts
// (`experts` above 1), they keep the results for rows that travelled. Routing is as even, and travel as well
// hidden, as assumed for ours. REQUIRES: `experts` is one of expert_degrees().
published::GroupProgram sharded_program(Sharding sharding, const strategy::Scheme& degrees,
                                        strategy::Exchange exchange, const cost::CostModel& cost,
                                        int world_size);
cost::CostModel sharded_cost(const cost::CostModel& cost, Sharding sharding, bool recompute, int world_size);

// The numbers of neighbouring lanes that may divide a program's experts: 1, and powers of two that divide
// lanes and experts.
std::vector<int> expert_degrees(const model::Model& model, int lanes);

// The time of gathering all parameters once, in kZero2 before a step; else 0.
int64_t gather_once_ns(Sharding sharding, const published::GroupProgram& program,
                       const cost::CostModel& cost);

// Whether some busy pipeline gathers parameters between nodes (cost/measured_passes.h).
bool gathers_between_nodes(const strategy::StepPlan& plan, const strategy::Topology& topology);

}  // namespace sluice::study
