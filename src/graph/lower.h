// Lowering: fills the model program's slots for one step plan. Every pipeline's cells become nodes, cuts
// between stages become transfers, Pull and Push slots become world exchanges in rounds, and the step ends
// with ReduceScalars and every rank's Update.
#pragma once

#include <memory>
#include <vector>

#include "cost/cost_model.h"
#include "graph/draft.h"
#include "graph/step_graph.h"

namespace sluice::graph {

// Lowers to a graph without times and programs, which the clock adds. Dependencies:
//   pull      inter of round r -> intra of round r; rounds ascending on each level
//   forward   pulls of its operations, transfer from the stage below, the cell before it on its lanes;
//             admission: the last weight-gradient cells, on all stages, of the micro-batches whose credit it
//             takes
//   backward  transfer from the stage above, the cell before it on its lanes
//   transfer  the cell that produces what it carries
//   offload   the forward of its layer; the forward two layers on waits for it
//   fetch     the backward two layers on; its layer's backward waits for it
//   push      the last cells that write a gradient of its buckets, on every holder; intra of round r -> inter
//             of round r; rounds descending on each level
//   scalars   the last pushes (evaluation: the last cell of every lane of every last stage)
//   update    scalars
StepGraph lower(const strategy::StepPlan& plan, const std::vector<PipelineDraft>& drafts,
                const Program& program, std::shared_ptr<const LinkPlan> links, const cost::CostModel& cost,
                Purpose purpose);

}  // namespace sluice::graph
