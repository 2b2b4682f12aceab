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
  std::vector<graph::StepGraph> earlier;  // other models' acts in front of it (session/earlier_act.h)
  std::string fallback;  // empty: the plan is the planner's; otherwise the reason why it is not
  runtime::StepTokens tokens;
  report::StepRecord known;                 // the part of the step's record that is known before it runs
  int64_t corpus_bytes = 0;                 // read for `tokens`
  int64_t predicted_peak_bytes = 0;         // on the fullest rank, with everything that it owns
  std::vector<int64_t> earlier_peak_bytes;  // likewise, for each act in front of it
  corpus::SamplerState sampler_after;       // stored by a checkpoint after this step
  base::Json rollout_after;                 // likewise, in runs with rollouts; else null
  // The act of another trunk trained in the same step, before this one: the critic's; null: there is none.
  std::shared_ptr<const PreparedStep> critic = nullptr;
  uint64_t agreement = 0;  // hash of plan and graph: equal on all ranks
};

// The inputs of planning. All of them outlive the planner thread and do not change meanwhile.
struct StepInputs {
  const plan::Planner& planner;
  const model::ParameterTable& table;
  int world_size = 1;
  int rank = 0;
  graph::LinkPlans* link_plans = nullptr;
  survive::PlanMemory* plans = nullptr;         // keeps and finds training's plans; null: none are kept
  uint64_t planner_hash = 0;                    // hash of everything that `planner` plans with
  const StepPlanners* step_planners = nullptr;  // planners by training step; null: `planner` plans them all
  session::EarlierActs earlier = {};            // acts in front of each training step
  int64_t beside_bytes = 0;                     // owned by a rank and not counted by `planner`
};

// Prepares a step on the calling thread: session::build_step, with a warning on rank 0 if it falls back, and
// this rank's tokens from `source` (null: none). Throws planning, graph building and reading errors.
PreparedStep prepare_step(const StepInputs& inputs, const std::vector<strategy::Sequence>& sequences,
                          const TokenSource* source, int64_t step, graph::Purpose purpose);
// The same for documents.
PreparedStep prepare_step(const StepInputs& inputs, const corpus::Blend& blend, int64_t step,
                          const std::vector<corpus::Sample>& samples, graph::Purpose purpose);

// The steps of training, one by one.
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
  // The most steps after the last result of next() that may have been planned, or are being planned.
  static constexpr int64_t kMostAhead = kDepth + 1;
  // The first step that no rank can have planned while `step` ends: its planner may still change.
  static constexpr int64_t first_unplanned(int64_t step) { return step + 1 + kMostAhead + 1; }
  // The following step; null when there is none. Called on the background thread only.
  using Source = std::function<std::unique_ptr<PreparedStep>()>;
  explicit PlanAhead(Source source, size_t depth = kDepth);
  ~PlanAhead() override;  // cancels the remaining steps

  // The next step; null after the last. Rethrows the source's exception when its step is reached.
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

// Training steps [sampler.step(), end_step) in order. Errors name the step in their message. `data`, to which
// the sampler belongs, outlives the source.
PlanAhead::Source training_steps(StepInputs inputs, const session::Data& data, session::PhasedSampler sampler,
                                 int64_t end_step);
// Evaluation steps: one per batch of `set`, which outlives the source.
PlanAhead::Source evaluation_steps(StepInputs inputs, const session::ValidationData& set);

}  // namespace sluice::run
