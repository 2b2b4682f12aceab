// The evaluations that a run makes between its steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "learn/rollout_generator.h"
#include "run/head_scores.h"
#include "run/other_adapters.h"
#include "run/run_context.h"
#include "survive/stop_signal.h"
#include "train/best_evaluation.h"
#include "train/reporter.h"

namespace sluice::train {

class Validation {
 public:
  // All arguments outlive this; `run` is open.
  // `generator`: generates answers to the sets' prompts, which are
  // rewarded, in runs that learn from their own outputs; otherwise null.
  Validation(run::RunContext& run, const survive::StopSignal& stop, Reporter& reporter,
             learn::RolloutGenerator* generator)
      : run_(run),
        stop_(stop),
        reporter_(reporter),
        generator_(generator),
        best_(run.start().state().evaluation, "the checkpoint") {}

  bool due(int64_t steps_done, bool last) const;

  // Collective. False if a stop request cut the evaluation short: then no set has a result.
  bool evaluate(int64_t after_step);

  // Collective. Whether train.patience ends the run; rank 0 logs it.
  bool is_out_of_patience();

  // Includes the evaluations before the checkpoint that the run continues from.
  const BestEvaluation& best() const { return best_; }

  // Collective. Opens train.eval_adapters, before the first evaluation.
  void open_adapters() { adapters_.emplace(run_.config(), run_.engine().store(), run_.control()); }

  // Collective. Makes up for the evaluation that a stop skipped, when the run continues.
  void make_up();

 private:
  std::optional<report::EvaluationMetrics> evaluate(const session::ValidationData& set, int64_t after_step);
  std::optional<report::EvaluationMetrics> evaluate_groups(const session::ValidationData& set,
                                                           int64_t after_step);
  // Adds the results of all sets, under another adapter's name, to `results`. False if a stop request cut it
  // short.
  bool evaluate_sets(int64_t after_step, const std::string& adapter,
                     std::vector<report::EvaluationMetrics>& results);
  void add_scores(const session::ValidationData& set, const run::PreparedStep& step,
                  const runtime::RowFigures& rows, run::ClassScores& scores);
  void answer(const session::ValidationData& set, report::EvaluationMetrics& metrics);

  run::RunContext& run_;
  const survive::StopSignal& stop_;
  Reporter& reporter_;
  learn::RolloutGenerator* generator_;
  BestEvaluation best_;
  std::optional<run::OtherAdapters> adapters_;
};

}  // namespace sluice::train
