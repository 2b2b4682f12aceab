#include "report/step_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "report/tensorboard.h"

namespace sluice::report {

namespace {

base::Json null_or(const std::string& fallback) {
  return fallback.empty() ? base::Json() : base::Json(fallback);
}

}  // namespace

base::Json to_json(const StepMetrics& metrics) {
  return {{"step", metrics.step},
          {"loss", metrics.loss},
          {"tokens", metrics.tokens},
          {"sequences", metrics.sequences},
          {"strategy", metrics.strategy},
          {"fallback", null_or(metrics.fallback)},
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

namespace {

// What summaries need of a line; older programs wrote less.
StepMetrics summed_of(const base::Json& line) {
  const auto number = [&](const char* key) {
    const base::Json* value = base::find(line, key);
    return value != nullptr && value->is_number() ? value->get<double>() : 0.0;
  };
  const auto count = [&](const char* key) { return static_cast<int64_t>(number(key)); };
  const auto word = [&](const char* key) {
    const base::Json* value = base::find(line, key);
    return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
  };
  StepMetrics metrics;
  metrics.step = count("step");
  metrics.loss = number("loss");
  metrics.strategy = word("strategy");
  metrics.fallback = word("fallback");
  metrics.time_ms = number("time_ms");
  metrics.predicted_ms = number("predicted_ms");
  metrics.unfused_attention = count("unfused_attention");
  metrics.link_exposed_ms = number("link_exposed_ms");
  metrics.tokens_per_s = number("tokens_per_s");
  metrics.overhead_ms = number("overhead_ms");
  metrics.epoch = count("epoch");
  metrics.ranks = count("ranks");
  metrics.snapshot_bytes = count("snapshot_bytes");
  metrics.snapshot_ms = number("snapshot_ms");
  return metrics;
}

EvaluationMetrics evaluation_of(const base::Json& line) {
  return {.step = line["step"].get<int64_t>(),
          .set = line.value("set", ""),
          .validation_loss = line["validation_loss"].is_number() ? line["validation_loss"].get<double>() : 0,
          .targets = line.value("targets", int64_t{0})};
}

}  // namespace

std::string epochs_text(const std::vector<EpochOfStep>& steps) {
  std::string described;
  const EpochOfStep* before = nullptr;
  for (const EpochOfStep& step : steps) {
    const std::string ranks = step.ranks > 0 ? base::human_count(step.ranks, "rank", "ranks") : "some ranks";
    if (before == nullptr) described = ranks;
    if (before != nullptr && before->epoch != step.epoch)
      described +=
          base::text(", from step ", step.step, " on ", step.ranks > 0 ? base::text(step.ranks) : "some");
    before = &step;
  }
  return steps.empty() || steps.front().epoch == steps.back().epoch ? "" : described;
}

base::Json to_json(const EvaluationMetrics& metrics) {
  base::Json json = {{"step", metrics.step}};
  if (!metrics.set.empty()) json["set"] = metrics.set;
  json.update({{"validation_loss", metrics.validation_loss},
               {"targets", metrics.targets},
               {"fallback", null_or(metrics.fallback)}});
  return json;
}

struct MetricsWriter::State {
  std::filesystem::path path;
  std::set<int64_t> earlier_steps;
  std::set<int64_t> earlier_evaluations;
  RunSummary earlier;
  int64_t first_step = 0;
  std::ofstream lines;
  std::unique_ptr<TensorBoardWriter> tensorboard;

  // The lines of an earlier part of the run that stay: those of steps before first_step.
  std::string earlier_lines() {
    std::string kept;
    if (!std::filesystem::exists(path)) return kept;
    for (const std::string& line : base::split(base::read_file(path), '\n')) {
      const base::Json json = base::Json::parse(line, nullptr, /*allow_exceptions=*/false);
      const base::Json* number = base::find(json, "step");
      if (number == nullptr || !base::holds_integer<int64_t>(*number)) continue;
      const auto step = number->get<int64_t>();
      if (step >= first_step) continue;
      kept += line + "\n";
      const bool evaluated = json.contains("validation_loss");
      (evaluated ? earlier_evaluations : earlier_steps).insert(step);
      if (evaluated) earlier.add(evaluation_of(json));
      if (!evaluated) earlier.add(summed_of(json));
    }
    return kept;
  }

  void write_line(const base::Json& line) {
    lines << base::json_text(line) << '\n';
    lines.flush();
    if (!lines)
      throw base::RunError(base::text("cannot write ", path.string(), ": free space and resume the run"));
  }
};

MetricsWriter::MetricsWriter(const Options& options) : state_(std::make_unique<State>()) {
  state_->path = options.directory / "metrics.jsonl";
  state_->first_step = options.first_step;
  base::write_file_atomically(state_->path, state_->earlier_lines());
  state_->lines.open(state_->path, std::ios::app);
  if (options.tensorboard)
    state_->tensorboard = std::make_unique<TensorBoardWriter>(options.directory, options.first_step);
}

MetricsWriter::~MetricsWriter() = default;

int64_t MetricsWriter::missing_steps() const {
  return state_->first_step - static_cast<int64_t>(state_->earlier_steps.size());
}

bool MetricsWriter::has_evaluation(int64_t step) const { return state_->earlier_evaluations.contains(step); }

const RunSummary& MetricsWriter::earlier() const { return state_->earlier; }

void MetricsWriter::write(const StepMetrics& metrics) {
  state_->write_line(to_json(metrics));
  if (!state_->tensorboard) return;
  state_->tensorboard->write(metrics.step, {{"train/loss", metrics.loss},
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
  state_->write_line(to_json(metrics));
  if (!state_->tensorboard) return;
  state_->tensorboard->write(
      metrics.step,
      {{metrics.set.empty() ? "validation/loss" : "validation/" + metrics.set, metrics.validation_loss}});
}

void RunSummary::add(const StepMetrics& metrics) { steps_.push_back(metrics); }
void RunSummary::add(const EvaluationMetrics& metrics) { evaluations_.push_back(metrics); }

namespace {

std::string fixed(double value, int digits) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
  return buffer;
}

template <typename Project>
double median(const std::vector<StepMetrics>& steps, Project project) {
  std::vector<double> values;
  for (const StepMetrics& step : steps) values.push_back(project(step));
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

double mean_loss(std::vector<StepMetrics>::const_iterator begin,
                 std::vector<StepMetrics>::const_iterator end) {
  double sum = 0;
  for (auto it = begin; it != end; ++it) sum += it->loss;
  return sum / static_cast<double>(std::max<int64_t>(1, end - begin));
}

// How the loss of the first steps became that of the last; no step is among both.
std::string loss_text(const std::vector<StepMetrics>& steps) {
  const int64_t window = std::min<int64_t>(10, static_cast<int64_t>(steps.size()) / 2);
  if (window == 0) return base::text(fixed(steps.front().loss, 4), " (of the one step)");
  const double first = mean_loss(steps.begin(), steps.begin() + window);
  const double last = mean_loss(steps.end() - window, steps.end());
  const std::string which = window == 1 ? "" : base::text(" ", window);
  return base::text(fixed(first, 4), " (first", which, ") -> ", fixed(last, 4), " (last", which, "), ",
                    fixed(100 * (last / first - 1), 1), " %");
}

}  // namespace

std::string RunSummary::text() const {
  if (steps_.empty()) return "no steps were run";
  std::map<std::string, int64_t> strategies;
  for (const StepMetrics& step : steps_) ++strategies[step.strategy];
  std::vector<std::string> lines;
  lines.push_back(base::text("steps           ", steps_.front().step, " to ", steps_.back().step));
  lines.push_back("loss            " + loss_text(steps_));
  std::map<std::string, EvaluationMetrics> last;  // of each set
  for (const EvaluationMetrics& evaluation : evaluations_) last[evaluation.set] = evaluation;
  for (const auto& [set, evaluation] : last) {
    lines.push_back(base::text("validation loss ", fixed(evaluation.validation_loss, 4), " over ",
                               base::human_count(evaluation.targets), " targets",
                               set.empty() ? "" : " of " + set));
  }
  std::vector<EpochOfStep> epochs;
  for (const StepMetrics& step : steps_) epochs.push_back({step.step, step.epoch, step.ranks});
  if (const std::string ranks = epochs_text(epochs); !ranks.empty())
    lines.push_back("epochs          " + ranks);
  const auto has_snapshot = [](const StepMetrics& step) { return step.snapshot_bytes > 0; };
  if (const int64_t snapshots = std::ranges::count_if(steps_, has_snapshot); snapshots > 0) {
    const auto& last = *std::ranges::find_if(steps_.rbegin(), steps_.rend(), has_snapshot);
    lines.push_back(base::text("snapshots       ", base::human_count(snapshots), ", ",
                               base::human_bytes(static_cast<double>(last.snapshot_bytes)),
                               " to buddies each, ", fixed(last.snapshot_ms, 1), " ms beside the steps"));
  }
  lines.push_back("strategies");
  for (const auto& [strategy, count] : strategies)
    lines.push_back(base::text("  ", base::human_count(count, "step", "steps"), " of ", strategy));
  const auto fell_back = [](const StepMetrics& step) { return !step.fallback.empty(); };
  if (const int64_t fallbacks = std::ranges::count_if(steps_, fell_back); fallbacks > 0) {
    lines.push_back(base::text("fallbacks       ", base::human_count(fallbacks, "step", "steps"),
                               " without the planner's own plan (\"fallback\" in metrics.jsonl says why)"));
  }
  int64_t unfused = 0;
  for (const StepMetrics& step : steps_) unfused += step.unfused_attention;
  if (unfused > 0) {
    lines.push_back(base::text("attention       ", base::human_count(unfused, "call", "calls"),
                               " by plain operators, for no fused kernel takes them (docs/kinds.md)"));
  }
  lines.push_back(base::text(
      "median step     ", fixed(median(steps_, [](auto& s) { return s.time_ms; }), 1), " ms, ",
      base::human_count(std::llround(median(steps_, [](auto& s) { return s.tokens_per_s; }))), " tokens/s"));
  const double error = median(steps_, [](auto& s) { return std::abs(s.predicted_ms / s.time_ms - 1); });
  lines.push_back(base::text("prediction      off by ", fixed(100 * error, 1), " % (median)"));
  lines.push_back(
      base::text("link exposed    ",
                 fixed(median(steps_, [](auto& s) { return 100 * s.link_exposed_ms / s.time_ms; }), 1),
                 " % of the step (median)"));
  lines.push_back(base::text(
      "engine overhead ", fixed(median(steps_, [](auto& s) { return 100 * s.overhead_ms / s.time_ms; }), 2),
      " % of the step (median)"));
  return base::join(lines, "\n");
}

}  // namespace sluice::report
