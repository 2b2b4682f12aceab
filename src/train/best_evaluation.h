// The course of a run's evaluations: the best so far, and the number since.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/json_fwd.h"
#include "report/metrics_file.h"

namespace sluice::train {

// A value type; checkpoints store it.
class BestEvaluation {
 public:
  BestEvaluation() = default;
  // Reads a manifest's entry; null: no evaluation was made. InputError with `name`, as base::require.
  BestEvaluation(const base::Json& json, const std::string& name);

  // Counts an evaluation of all validation sets after so many steps. A NaN is never the best.
  void add(int64_t steps, std::span<const report::EvaluationMetrics> of_sets);

  // Whether the last evaluation that was added is the best.
  bool is_best() const { return last_ && since_best_ == 0; }
  // Evaluations since the best one.
  int64_t since_best() const { return since_best_; }
  std::optional<double> best() const { return best_; }

  // {"step": of the last evaluation, "measure": its measure, "best": …,
  // "best_step": …, "since_best": N}; null if there was none.
  base::Json to_json() const;

  // The number of steps before the best evaluation.
  int64_t best_step() const { return best_step_; }

 private:
  int64_t step_ = 0;
  int64_t best_step_ = 0;
  std::optional<double> last_;
  std::optional<double> best_;
  int64_t since_best_ = 0;
};

// An evaluation's measure, lower for better models: the mean loss over the targets of all sets;
// if answers are rewarded, minus the mean of the sets' rewards. Nothing if no set has either.
std::optional<double> measure_of(std::span<const report::EvaluationMetrics> of_sets);

}  // namespace sluice::train
