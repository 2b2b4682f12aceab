#include "report/metrics_file.h"

#include <algorithm>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/json_fields.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "report/run_data.h"

namespace sluice::report {

namespace {

base::Json null_or(const std::string& words) { return words.empty() ? base::Json() : base::Json(words); }

}  // namespace

std::vector<std::pair<std::string, double>> head_figures(const EvaluationMetrics& metrics) {
  std::vector<std::pair<std::string, double>> figures;
  const std::optional<double> all[] = {metrics.accuracy,    metrics.f1,           metrics.margin,
                                       metrics.recall_at_1, metrics.recall_at_10, metrics.mrr_at_10,
                                       metrics.ndcg_at_10};
  static_assert(std::size(all) == std::size(kHeadFigures));
  for (size_t i = 0; i < std::size(all); ++i) {
    if (all[i]) figures.emplace_back(kHeadFigures[i], *all[i]);
  }
  return figures;
}

base::Json to_json(const EvaluationMetrics& metrics) {
  base::Json json = {{"step", metrics.step}};
  if (!metrics.set.empty()) json["set"] = metrics.set;
  if (!metrics.adapter.empty()) json["adapter"] = metrics.adapter;
  json.update({{"validation_loss", metrics.validation_loss},
               {"targets", metrics.targets},
               {"fallback", null_or(metrics.fallback)}});
  if (metrics.reward) json["reward"] = *metrics.reward;
  for (const auto& [key, figure] : head_figures(metrics)) json[key] = figure;
  return json;
}

MetricsWriter::MetricsWriter(const Options& options)
    : path_(options.directory / "metrics.jsonl"), options_(options) {
  drop_from(options.first_step);
  lines_.emplace(path_);
  if (options.tensorboard) tensorboard_.emplace(options.directory, options.first_step);
}

// Drops the lines of steps from first_step on, and a line that was cut off when the run was killed.
void MetricsWriter::drop_from(int64_t first_step) {
  missing_steps_ = first_step;
  if (!std::filesystem::exists(path_)) return;
  size_t kept_bytes = 0;
  if (first_step > 0) {
    const base::MappedFile file(path_);
    std::string_view left(reinterpret_cast<const char*>(file.data()), file.size());
    left = left.substr(0, left.rfind('\n') + 1);
    while (!left.empty() && missing_steps_ == first_step) {
      const size_t begin = left.substr(0, left.size() - 1).rfind('\n') + 1;
      base::Json line;
      base::read_json_text(left.substr(begin), base::JsonDialect::kStrict, line);
      const base::Json* number = base::find(line, "step");
      const bool is_line = number != nullptr && base::holds_integer<int64_t>(*number);
      if (const int64_t step = is_line ? number->get<int64_t>() : -1; 0 <= step && step < first_step) {
        kept_bytes = std::max(kept_bytes, left.size());
        const bool evaluated = line.contains("validation_loss");
        if (!evaluated) missing_steps_ = first_step - 1 - step;
        was_evaluated_ = was_evaluated_ || (evaluated && step == first_step - 1);
      }
      left = left.substr(0, begin);
    }
  }
  std::error_code error;
  std::filesystem::resize_file(path_, kept_bytes, error);
  if (error) throw base::RunError(base::text("cannot cut ", path_.string(), ": ", error.message()));
}

void MetricsWriter::write_line(const base::Json& line) { lines_->append(base::json_text(line) + "\n"); }

void MetricsWriter::write(const StepRecord& step) {
  const base::Json line = to_json(step);
  write_line(line);
  if (!step.completions.empty()) write(step.completions);
  if (!tensorboard_) return;
  std::vector<TensorBoardWriter::Scalar> scalars;
  for (const Metric& metric : step_metrics()) {
    const base::Json& value = line.value(metric.key, base::Json());
    if (metric.tensorboard != nullptr && value.is_number())
      scalars.push_back({metric.tensorboard, value.get<double>()});
  }
  tensorboard_->write(step.step, scalars);
}

void MetricsWriter::write(const std::vector<Completion>& completions) {
  if (!completions_) completions_.emplace(options_.directory, options_.first_step);
  completions_->write(completions);
  if (tensorboard_)
    tensorboard_->write_text(completions.front().step, "rl/completions", completions_markdown(completions));
}

void MetricsWriter::write(const EvaluationMetrics& metrics) {
  write_line(to_json(metrics));
  if (!tensorboard_) return;
  tensorboard_->write(metrics.step, {{metrics.set.empty() ? "validation/loss" : "validation/" + metrics.set,
                                      metrics.validation_loss}});
  for (const auto& [key, figure] : head_figures(metrics))
    tensorboard_->write(
        metrics.step,
        {{metrics.set.empty() ? "validation/" + key : "validation/" + metrics.set + "_" + key, figure}});
  if (metrics.reward)
    tensorboard_->write(metrics.step,
                        {{metrics.set.empty() ? "validation/reward" : "validation/" + metrics.set + "_reward",
                          *metrics.reward}});
}

}  // namespace sluice::report
