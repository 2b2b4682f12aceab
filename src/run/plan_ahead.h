// Plans steps ahead of the trainer on a background thread: batch, step plan, verified step graph and this
// rank's tokens, a few steps deep.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/json.h"
#include "base/queue.h"
#include "corpus/sampler.h"
#include "graph/build.h"
#include "plan/planner.h"
#include "report/step_record.h"
#include "run/step_planners.h"
#include "run/step_tokens.h"
#include "session/data.h"
#include "session/planned_step.h"
#include "survive/plan_memory.h"

namespace sluice::run {

// Everything that one step needs, ready to run.
struct PreparedStep {
  strategy::StepPlan plan;
  graph::StepGraph graph;
  std::optional<graph::StepGraph> earlier;  // of an act in front of it (session/earlier_act.h)
  std::string fallback;  // empty: the plan is the planner's; otherwise why it is not
  runtime::StepTokens tokens;
  report::StepRecord known;            // what is to be told of it that is known before it runs
  int64_t corpus_bytes = 0;            // read for `tokens`
  int64_t predicted_peak_bytes = 0;    // of the fullest rank, with all that it owns
  int64_t earlier_peak_bytes = 0;      // likewise, of the act in front of it
  corpus::SamplerState sampler_after;  // what a checkpoint after this step stores
  base::Json rollout_after;            // likewise, of runs that roll out; else null
  // The act of another trunk that trains in the same step, in front of this one: a critic's; null: there is none.
  std::shared_ptr<const PreparedStep> critic = nullptr;
  uint64_t agreement = 0;              // hash of plan and graph: equal on all ranks
};

// What planning reads; all of it outlives the planner thread and is not changed meanwhile.
struct StepInputs {
  const plan::Planner& planner;
  const model::ParameterTable& table;
  int world_size = 1;
  int rank = 0;
  graph::LinkPlans* link_plans = nullptr;
  survive::PlanMemory* plans = nullptr;         // where training's are kept, and looked for; null: nowhere
  uint64_t planner_hash = 0;                    // of all that `planner` plans with
  const StepPlanners* step_planners = nullptr;  // of training's steps; null: `planner` plans them all
  const session::EarlierAct* earlier = nullptr;  // in front of training's steps; null: none
  int64_t beside_bytes = 0;  // that a rank owns beside what `planner` counts
};

// One step on the calling thread: session::build_step with a warning on rank 0 where it falls back, and this
// rank's tokens, from `source`; null: none. Throws what planning, graph building and reading throw.
PreparedStep prepare_step(const StepInputs& inputs, const std::vector<strategy::Sequence>& sequences,
                          const TokenSource* source, int64_t step, graph::Purpose purpose);
// The same of documents.
PreparedStep prepare_step(const StepInputs& inputs, const corpus::Blend& blend, int64_t step,
                          const std::vector<corpus::Sample>& samples, graph::Purpose purpose);

// What a run trains on, step by step.
class StepSource {
 public:
  virtual ~StepSource() = default;
  // The next step; null after the last.
  virtual std::unique_ptr<PreparedStep> next() = 0;
};

// Runs a source of steps on a thread of its own, at most `depth` steps ahead of next().
class PlanAhead final : public StepSource {
 public:
  static constexpr size_t kDepth = 2;
  // So many steps behind the one that next() gave last may have been planned, or are being planned.
  static constexpr int64_t kMostAhead = kDepth + 1;
  // Behind a step that has run the first of which no rank has a plan yet: what it is planned by may change.
  static constexpr int64_t first_unplanned(int64_t step) { return step + 1 + kMostAhead + 1; }
  // The following step; null when there is none. Called on the background thread only.
  using Source = std::function<std::unique_ptr<PreparedStep>()>;
  explicit PlanAhead(Source source, size_t depth = kDepth);
  ~PlanAhead() override;  // cancels what is left

  // The next step; null after the last. Rethrows what the source threw when that step is reached.
  std::unique_ptr<PreparedStep> next() override;

 private:
  struct Outcome {
    std::unique_ptr<PreparedStep> step;
    std::exception_ptr error;
  };
  void plan_all();

  Source source_;
  base::BoundedQueue<Outcome> queue_;
  std::thread thread_;
};

// Training's steps [sampler.step(), end_step) in order. Errors carry the step in their message. `data`, whose
// sampler it is, outlives the source.
PlanAhead::Source training_steps(StepInputs inputs, const session::Data& data, session::PhasedSampler sampler,
                                 int64_t end_step);
// Evaluates the batches of `set`, which outlives the source, one a step.
PlanAhead::Source evaluation_steps(StepInputs inputs, const session::ValidationData& set);

}  // namespace sluice::run
