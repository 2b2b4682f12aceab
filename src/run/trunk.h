// A model beside the trained one. All ranks own it in even slices, as they own the run's model, and pull the
// parameters that their place in a strategy computes with. A frozen trunk (a reward model, a teacher) has no
// gradients and no optimizer state, and is in no checkpoint; a critic has both.
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
    bool leaves_head_rows = false;  // instead of losses or numbers
    std::shared_ptr<const layers::NumberLoss> number_loss = nullptr;
  };
  // Collective, without weights. The run is open and outlives it. Throws on every rank: InputError naming the
  // folder if its tokenizer differs from that of the run's documents or no strategy of the run divides the
  // model; InfeasibleError if no strategy holds it beside the run's model.
  Trunk(RunContext& run, const session::OtherModel& model, const Options& options);

  // Collective: every rank reads its owner slices from the model's folder (Hugging Face) or checkpoint.
  void load();

  const session::OtherModel& model() const { return planning_->model; }
  runtime::ParameterStore& store() { return engine_->store(); }
  // The inputs for planning steps of the trunk alone.
  StepInputs inputs();
  // The act, for planning steps of the run's model with the trunk's act in front.
  const session::EarlierAct& act() const { return *act_; }

  // The newest evaluation's or training step's record, without a name. It counts all that the rank owns.
  const report::ActRecord& newest() const { return newest_; }
  const runtime::StepTiming& newest_timing() const { return timing_; }
  const cost::CostModel& cost() const { return planning_->planner.cost(); }

  // Collective, between steps of the run's model, whose shards are released for it. Messages name `what`.
  runtime::RowFigures evaluate(const graph::StepGraph& graph, const runtime::StepTokens& tokens,
                               const std::string& what);
  // Likewise, a training step. REQUIRES: the trunk trains.
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
