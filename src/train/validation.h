// The evaluations that a run makes between its steps.
#pragma once

#include <cstdint>
#include <optional>

#include "train/reporter.h"
#include "train/run_context.h"
#include "train/stop_signal.h"

namespace sluice::train {

class Validation {
 public:
  // All outlive it; `run` is open.
  Validation(RunContext& run, const StopSignal& stop, Reporter& reporter)
      : run_(run), stop_(stop), reporter_(reporter) {}

  bool due(int64_t steps_done, bool last) const;

  // Collective. False when it was cut short by the wish to stop: then it has no result, of no set.
  bool evaluate(int64_t after_step);

  // Collective. A stop leaves out the evaluation that its step was due; a run that continues makes up for it.
  void make_up();

 private:
  std::optional<report::EvaluationMetrics> evaluate(const session::ValidationData& set, int64_t after_step);

  RunContext& run_;
  const StopSignal& stop_;
  Reporter& reporter_;
};

}  // namespace sluice::train
