// On-policy distillation: steps on responses that the student samples itself, under the teacher's
// distribution (Agarwal et al., On-Policy Distillation of Language Models, GKD, 2024, algorithm 1).
#pragma once

#include <memory>
#include <vector>

#include "learn/rollout_generator.h"
#include "rl/episode.h"
#include "run/plan_ahead.h"
#include "run/run_context.h"

namespace sluice::learn {

// Whether a step learns from the student's responses: `lmbda` of all steps do, spread evenly.
bool is_on_policy(int64_t step, double lmbda);

// Every step draws the batch that it would draw without responses. An on-policy step puts the student's
// response in place of the last answer of each conversation and has its loss on the response; the other steps
// learn from the batch as it is. Responses depend on seed, prompt, step and parameters alone, so a resumed
// run repeats them.
class StudentResponses final : public run::StepSource {
 public:
  // REQUIRES: the run is open; run and generator outlive this.
  StudentResponses(run::RunContext& run, RolloutGenerator& generator);

  // Collective; called by the thread that runs steps, because the engine samples responses.
  std::unique_ptr<run::PreparedStep> next() override;

 private:
  run::PreparedStep prepare(const corpus::Batch& batch);
  // The conversations of a batch, answered; without those whose prompt leaves no room for a response.
  rl::MiniBatch answered(const corpus::Batch& batch);
  report::StepRecord describe(const rl::MiniBatch& episodes, const std::vector<Response>& responses,
                              int64_t step) const;

  run::RunContext& run_;
  RolloutGenerator& generator_;
  session::PhasedSampler batches_;
  report::StepRecord told_;  // figures of the newest step's responses
};

}  // namespace sluice::learn
