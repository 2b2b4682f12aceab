// For tests: a frozen model whose act runs before each step of another model, under the step's plan.
#pragma once

#include <utility>
#include <vector>

#include "graph/build.h"
#include "model/outline.h"
#include "runtime/engine.h"
#include "runtime/make_executor.h"

namespace sluice::runtime {

class TestTeacher {
 public:
  // Made beside an engine of these options; all arguments but the model and the options must outlive it.
  TestTeacher(const model::Outline& outline, cost::CostModel cost,
              const std::vector<strategy::Strategy>& strategies, comm::Transport& transport,
              const Engine& beside, Engine::Options options)
      : table_(model::parameter_table(outline, cost.program())),
        cost_(std::move(cost)),
        world_size_(transport.world_size()) {
    options.distillation.reset();
    options.keeps_head_rows = true;
    options.trains = false;
    options.communicators = beside.communicators();
    engine_ =
        std::make_unique<Engine>(table_, strategies, transport, make_executor(options.device, {}), options);
    initialize(engine_->store(), 11);
  }

  // The head rows that the teacher keeps for a step.
  std::vector<layers::HeadRows> rows(const graph::StepGraph& step, const StepTokens& tokens) {
    strategy::StepPlan plan = step.plan;
    for (strategy::PipelinePlan& pipeline : plan.pipelines) pipeline.stage_layers = {};
    const graph::BuildOptions build{
        .purpose = graph::Purpose::kEvaluate, .disabled_passes = {}, .link_plans = &link_plans_};
    RowFigures rows;
    engine_->evaluate(graph::build(plan, table_, cost_, world_size_, build), tokens, &rows);
    engine_->release();
    return std::move(rows.head_rows);
  }

 private:
  model::ParameterTable table_;
  cost::CostModel cost_;
  int world_size_;
  graph::LinkPlans link_plans_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace sluice::runtime
