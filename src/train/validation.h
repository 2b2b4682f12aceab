// The evaluations that a run makes between its steps.
#pragma once

#include <cstdint>
#include <optional>

#include "learn/rollout_generator.h"
#include "run/head_scores.h"
#include "run/run_context.h"
#include "survive/stop_signal.h"
#include "train/best_evaluation.h"
#include "train/reporter.h"

namespace sluice::train {

class Validation {
 public:
  // All outlive it; `run` is open.
  // `speaker`: of runs that learn from what they say, whose answers to the sets' prompts are rewarded; else
  // null.
  Validation(run::RunContext& run, const survive::StopSignal& stop, Reporter& reporter,
             learn::RolloutGenerator* generator)
      : run_(run),
        stop_(stop),
        reporter_(reporter),
        generator_(generator),
        best_(run.start().state().evaluation, "the checkpoint") {}

  bool due(int64_t steps_done, bool last) const;

  // Collective. False when it was cut short by the wish to stop: then it has no result, of no set.
  bool evaluate(int64_t after_step);

  // Collective. Whether train.patience ends the run, which is said then.
  bool is_out_of_patience();

  // Of all evaluations of the run, as the checkpoint that it goes on from told it.
  const BestEvaluation& best() const { return best_; }

  // Collective. A stop leaves out the evaluation that its step was due; a run that continues makes up for it.
  void make_up();

 private:
  std::optional<report::EvaluationMetrics> evaluate(const session::ValidationData& set, int64_t after_step);
  std::optional<report::EvaluationMetrics> evaluate_groups(const session::ValidationData& set,
                                                           int64_t after_step);
  void add_scores(const session::ValidationData& set, const run::PreparedStep& step,
                  const runtime::RowFigures& rows, run::ClassScores& scores);
  void answer(const session::ValidationData& set, report::EvaluationMetrics& metrics);

  run::RunContext& run_;
  const survive::StopSignal& stop_;
  Reporter& reporter_;
  learn::RolloutGenerator* generator_;
  BestEvaluation best_;
};

}  // namespace sluice::train
