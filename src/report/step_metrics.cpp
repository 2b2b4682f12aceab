#include "report/step_metrics.h"

#include <algorithm>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/json_fields.h"
#include "base/text.h"

namespace sluice::report {

namespace {

base::Json null_or(const std::string& words) { return words.empty() ? base::Json() : base::Json(words); }

}  // namespace

base::Json to_json(const StepMetrics& metrics) {
  return {{"step", metrics.step},
          {"loss", metrics.loss},
          {"tokens", metrics.tokens},
          {"sequences", metrics.sequences},
          {"strategy", metrics.strategy},
          {"fallback", null_or(metrics.fallback)},
          {"device", metrics.device},
          {"degraded", null_or(metrics.degraded)},
          {"time_ms", metrics.time_ms},
          {"predicted_ms", metrics.predicted_ms},
          {"planning_ms", metrics.planning_ms},
          {"gap_ppm", metrics.gap_ppm},
          {"grad_norm", metrics.grad_norm},
          {"lr", metrics.lr},
          {"pull_bytes", metrics.pull_bytes},
          {"push_bytes", metrics.push_bytes},
          {"ring_bytes", metrics.ring_bytes},
          {"share_bytes", metrics.share_bytes},
          {"unfused_attention", metrics.unfused_attention},
          {"corpus_bytes", metrics.corpus_bytes},
          {"link_exposed_ms", metrics.link_exposed_ms},
          {"gather_exposed_ms", metrics.gather_exposed_ms},
          {"peak_bytes", metrics.peak_bytes},
          {"predicted_peak_bytes", metrics.predicted_peak_bytes},
          {"tokens_per_s", metrics.tokens_per_s},
          {"overhead_ms", metrics.overhead_ms},
          {"epoch", metrics.epoch},
          {"ranks", metrics.ranks},
          {"snapshot_bytes", metrics.snapshot_bytes},
          {"snapshot_ms", metrics.snapshot_ms},
          {"checkpoint_blocked_ms", metrics.checkpoint_blocked_ms}};
}

base::Json to_json(const EvaluationMetrics& metrics) {
  base::Json json = {{"step", metrics.step}};
  if (!metrics.set.empty()) json["set"] = metrics.set;
  json.update({{"validation_loss", metrics.validation_loss},
               {"targets", metrics.targets},
               {"fallback", null_or(metrics.fallback)}});
  return json;
}

MetricsWriter::MetricsWriter(const Options& options) : path_(options.directory / "metrics.jsonl") {
  drop_from(options.first_step);
  lines_.open(path_, std::ios::app);
  if (options.tensorboard) tensorboard_.emplace(options.directory, options.first_step);
}

// What of the end is no whole line of an earlier step goes, too: the run was killed while it wrote.
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
      const base::Json line = base::Json::parse(left.substr(begin), nullptr, /*allow_exceptions=*/false);
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

void MetricsWriter::write_line(const base::Json& line) {
  lines_ << base::json_text(line) << '\n';
  lines_.flush();
  if (!lines_)
    throw base::RunError(base::text("cannot write ", path_.string(), ": free space and resume the run"));
}

void MetricsWriter::write(const StepMetrics& metrics) {
  write_line(to_json(metrics));
  if (!tensorboard_) return;
  tensorboard_->write(metrics.step, {{"train/loss", metrics.loss},
                                     {"train/grad_norm", metrics.grad_norm},
                                     {"train/lr", metrics.lr},
                                     {"time/step_ms", metrics.time_ms},
                                     {"time/predicted_ms", metrics.predicted_ms},
                                     {"time/planning_ms", metrics.planning_ms},
                                     {"time/link_exposed_ms", metrics.link_exposed_ms},
                                     {"throughput/tokens_per_s", metrics.tokens_per_s},
                                     {"memory/peak_bytes", static_cast<double>(metrics.peak_bytes)}});
}

void MetricsWriter::write(const EvaluationMetrics& metrics) {
  write_line(to_json(metrics));
  if (!tensorboard_) return;
  tensorboard_->write(metrics.step, {{metrics.set.empty() ? "validation/loss" : "validation/" + metrics.set,
                                      metrics.validation_loss}});
}

}  // namespace sluice::report
