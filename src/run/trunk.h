// A model beside the one that a run trains: all ranks own it in even slices, as they own theirs, and pull what
// their place in a strategy computes with. A frozen one (a learnt reward, a teacher) has no gradients and no
// optimizer state, and is in no checkpoint; a critic has both.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/build.h"
#include "model/parameters.h"
#include "plan/planner.h"
#include "report/step_record.h"
#include "runtime/engine.h"
#include "session/earlier_act.h"
#include "session/other_models.h"
#include "session/trunk_planning.h"
#include "run/plan_ahead.h"
#include "run/run_context.h"

namespace sluice::run {

class Trunk {
 public:
  struct Options {
    bool trains = false;
    bool leaves_head_rows = false;  // in place of losses or numbers
    std::shared_ptr<const layers::NumberLoss> number_loss = nullptr;
  };
  // Collective, without weights. The run is open and outlives it. Throws on every rank: InputError naming the
  // folder where it has another tokenizer than the run's documents, or no strategy of the run cuts it,
  // InfeasibleError where none holds it beside the run's model.
  Trunk(RunContext& run, const session::OtherModel& model, const Options& options);

  // Collective: every rank reads what it owns from the model's folder, a Hugging Face folder or a checkpoint.
  void load();

  const session::OtherModel& model() const { return planning_->model; }
  runtime::ParameterStore& store() { return engine_->store(); }
  // For who plans steps of it alone.
  StepInputs inputs();
  // For who plans its act in front of steps of the run's model.
  const session::EarlierAct& act() const { return *act_; }

  // The newest evaluation's or training step's, without a name; memory of all that the rank owns.
  const report::ActRecord& newest() const { return newest_; }
  const runtime::StepTiming& newest_timing() const { return timing_; }
  const cost::CostModel& cost() const { return planning_->planner.cost(); }

  // Collective, between steps of the run's model, whose shards are let go of for it. `what` is for people.
  runtime::RowFigures evaluate(const graph::StepGraph& graph, const runtime::StepTokens& tokens,
                               const std::string& what);
  // Likewise. REQUIRES: it trains.
  runtime::StepResult train(const graph::StepGraph& graph, const runtime::StepTokens& tokens,
                            const runtime::AdamW& optimizer, const std::string& what);

 private:
  void open(const Options& options);
  void require_common_rows(const session::OtherModel& model) const;
  void note(const graph::StepGraph& graph, const runtime::StepResult& result, int64_t time_ns);

  RunContext& run_;
  std::optional<session::TrunkPlanning> planning_;
  graph::LinkPlans link_plans_;
  std::optional<session::EarlierAct> act_;
  std::unique_ptr<runtime::Engine> engine_;
  report::ActRecord newest_;
  runtime::StepTiming timing_;
};

}  // namespace sluice::run
