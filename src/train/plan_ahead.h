// Plans steps ahead of the trainer on a background thread: batch, step plan, verified step graph and this
// rank's tokens, a few steps deep.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <thread>

#include "base/queue.h"
#include "corpus/sampler.h"
#include "graph/build.h"
#include "plan/planner.h"
#include "train/step_tokens.h"

namespace sluice::train {

// Everything that one step needs, ready to run.
struct PreparedStep {
  strategy::StepPlan plan;
  graph::StepGraph graph;
  runtime::StepTokens tokens;
  corpus::SamplerState sampler_after;  // what a checkpoint after this step stores
  uint64_t agreement = 0;              // hash of plan and graph: equal on all ranks
};

// What planning reads; all of it outlives the planner thread and is not changed meanwhile.
struct PlanningInputs {
  const corpus::Blend& blend;
  const plan::Planner& planner;
  const model::ParameterTable& table;
  int world_size = 1;
  int rank = 0;
  graph::LinkPlans* link_plans = nullptr;
};

// One step, on the calling thread. Throws what planning, graph building and reading throw.
PreparedStep prepare_step(const PlanningInputs& inputs, int64_t step,
                          const std::vector<corpus::Sample>& samples, graph::Purpose purpose);

class PlanAhead {
 public:
  // Plans steps [sampler.step(), end_step) in order, at most `depth` ahead of next().
  PlanAhead(PlanningInputs inputs, corpus::Sampler sampler, int64_t end_step, size_t depth = 2);
  ~PlanAhead();  // cancels what is left

  // The next step; null after the last. Rethrows planning's error, with the step in its message, when the
  // step that failed is reached.
  std::unique_ptr<PreparedStep> next();

 private:
  struct Outcome {
    std::unique_ptr<PreparedStep> step;
    std::exception_ptr error;
  };
  void plan_all();

  PlanningInputs inputs_;
  corpus::Sampler sampler_;
  int64_t end_step_;
  base::BoundedQueue<Outcome> queue_;
  std::thread thread_;
};

}  // namespace sluice::train
