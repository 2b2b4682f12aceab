// Who computes what in which order, before any link or transfer is placed: each pipeline's cells as its
// schedule orders them. The passes on compute order work here, where moving a cell is moving a list entry.
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

// One compute event to be: a micro-batch (where lanes share parameters a pass) on a stage, or on a run of the
// stage's operations.
struct DraftCell {
  cost::CellKind kind = cost::CellKind::kForward;
  int pass = 0;
  base::Interval run;  // operations of the model program
  int64_t duration_ns = 0;
  int64_t cp_exchange_ns = 0;  // of it: waiting for keys and values of other lanes
  int64_t fsdp_ns = 0;         // of it: waiting for gathered parameters and summed gradients
};

struct DraftStage {
  base::Interval run;
  std::vector<DraftCell> cells;
  std::vector<std::vector<int>>
      order;  // by lane, indices of cells; a tied micro-batch's cell stands in several
};

// Micro-batches are those of the load: the plan's passes.
struct PipelineDraft {
  int pipeline = 0;                              // index in StepPlan::pipelines
  const strategy::PipelinePlan* plan = nullptr;  // that one
  std::vector<strategy::Pass> passes;            // by micro-batch
  std::vector<cost::Work> work;                  // by micro-batch, of the pieces on its fullest lane
  schedule::PipelineLoad load;
  // By micro-batch, those whose credit it takes over: it is admitted after their weight gradients on all
  // stages.
  std::vector<std::vector<int>> admitted_after;
  std::vector<DraftStage> stages;

  const strategy::Pipeline& place() const { return plan->pipeline; }
};

// The pipelines at work, of a plan that must outlive them. Evaluation runs every stage's forwards in the
// order of injection.
std::vector<PipelineDraft> draft(const strategy::StepPlan& plan, const Program& program,
                                 const cost::CostModel& cost, int world_size, Purpose purpose);

// Pass "layer-parts": on every lane of every stage the first forward is cut by pull rounds, so that it
// starts when the first round is there; so is the last backward, when it is fused, so that pushes start
// while it runs, and where lanes share parameters the last weight gradient.
void split_outer_cells(PipelineDraft& draft, const cost::CostModel& cost,
                       const std::vector<int>& pull_rounds);

// Pass "tail-weights": the weight gradients behind a stage's last input gradient (and, on lanes, behind the
// last tied cell) are cut by rounds and run latest round first, each round over all micro-batches, so that
// its push can start while the others run.
void reorder_tail_weights(PipelineDraft& draft, const cost::CostModel& cost,
                          const std::vector<int>& pull_rounds);

}  // namespace sluice::graph
