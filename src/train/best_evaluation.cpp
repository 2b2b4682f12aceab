#include "train/best_evaluation.h"

#include <cmath>
#include <string>

#include "base/json_fields.h"

namespace sluice::train {

std::optional<double> measure_of(std::span<const report::EvaluationMetrics> of_sets) {
  double rewards = 0, loss_sum = 0;
  int64_t rewarded = 0, targets = 0;
  for (const report::EvaluationMetrics& set : of_sets) {
    if (set.reward) {
      rewards += *set.reward;
      ++rewarded;
    }
    if (set.targets > 0) loss_sum += set.validation_loss * static_cast<double>(set.targets);
    targets += set.targets;
  }
  if (rewarded > 0) return -rewards / static_cast<double>(rewarded);
  if (targets > 0) return loss_sum / static_cast<double>(targets);
  return std::nullopt;
}

BestEvaluation::BestEvaluation(const base::Json& json, const std::string& name) {
  if (json.is_null()) return;
  step_ = base::require<int64_t>(json, "step", name);
  best_step_ = base::require<int64_t>(json, "best_step", name);
  last_ = base::require<double>(json, "measure", name);
  best_ = base::require<double>(json, "best", name);
  since_best_ = base::require<int64_t>(json, "since_best", name);
}

void BestEvaluation::add(int64_t steps, std::span<const report::EvaluationMetrics> of_sets) {
  const std::optional<double> measure = measure_of(of_sets);
  if (!measure) return;
  ++since_best_;
  if (!std::isfinite(*measure)) return;
  step_ = steps;
  last_ = measure;
  if (best_ && !(*measure < *best_)) return;
  best_ = measure;
  best_step_ = steps;
  since_best_ = 0;
}

base::Json BestEvaluation::to_json() const {
  if (!last_) return nullptr;
  return {{"step", step_},
          {"measure", *last_},
          {"best", *best_},
          {"best_step", best_step_},
          {"since_best", since_best_}};
}

}  // namespace sluice::train
