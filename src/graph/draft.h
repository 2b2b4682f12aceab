// The order of computing before any link or transfer is placed: each pipeline's cells in the order
// of its schedule. Passes on compute order work here, where moving a cell is moving a list entry.
#pragma once

#include <cstdint>
#include <vector>

#include "base/interval.h"
#include "cost/cost_model.h"
#include "graph/model_program.h"
#include "schedule/pipeline_schedule.h"
#include "strategy/pass.h"
#include "strategy/step_plan.h"

namespace sluice::graph {

// A future compute event: a micro-batch (a pass, if lanes share
// parameters) on a stage, or on a run of the stage's operations.
struct DraftCell {
  cost::CellKind kind = cost::CellKind::kForward;
  int pass = 0;
  base::Interval run;  // operations of the model program
  int64_t duration_ns = 0;
  int64_t cp_exchange_ns = 0;  // part spent waiting for other lanes' keys and values
  int64_t fsdp_ns = 0;         // part spent waiting for gathered parameters and summed gradients
};

struct DraftStage {
  base::Interval run;
  std::vector<DraftCell> cells;
  std::vector<std::vector<int>>
      order;  // by lane, indices of cells; a micro-batch of several lanes stands in several
};

// The micro-batches of `load` are the plan's passes.
struct PipelineDraft {
  int pipeline = 0;                              // index in StepPlan::pipelines
  const strategy::PipelinePlan* plan = nullptr;  // its plan
  std::vector<strategy::Pass> passes;            // by micro-batch
  std::vector<cost::Work> work;                  // by micro-batch, on its fullest lane
  schedule::PipelineLoad load;
  // By micro-batch: the micro-batches whose credit it takes over. They must
  // have finished their weight gradients on all stages before it is admitted.
  std::vector<std::vector<int>> admitted_after;
  std::vector<DraftStage> stages;

  const strategy::Pipeline& place() const { return plan->pipeline; }
};

// Drafts the pipelines with micro-batches. The plan must outlive the
// drafts. Evaluation runs every stage's forwards in the order of injection.
std::vector<PipelineDraft> draft(const strategy::StepPlan& plan, const Program& program,
                                 const cost::CostModel& cost, int world_size, Purpose purpose);

// Pass "layer-parts": cuts the first forward of every lane and stage by pull rounds, so
// that it starts once the first round has arrived. Also cuts the last backward if it is
// fused, and with FSDP the last weight gradient, so that pushes start while it runs.
void split_outer_cells(PipelineDraft& draft, const cost::CostModel& cost,
                       const std::vector<int>& pull_rounds);

// Pass "tail-weights": cuts weight gradients after a stage's last input gradient (with
// lanes: after the last tied cell, too) by rounds. They run latest round first, each
// round over all micro-batches, so that its push starts while the other rounds run.
void reorder_tail_weights(PipelineDraft& draft, const cost::CostModel& cost,
                          const std::vector<int>& pull_rounds);

}  // namespace sluice::graph
