#include "train/reporter.h"

#include <cmath>
#include <cstdio>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json_fields.h"
#include "base/log.h"
#include "base/part.h"
#include "base/progress.h"
#include "base/text.h"
#include "checkpoint/save.h"
#include "config/config_file.h"
#include "graph/what_if.h"
#include "ops/attention.h"
#include "report/closing_summary.h"
#include "report/next_commands.h"
#include "report/page.h"
#include "report/prometheus.h"
#include "report/run_files.h"
#include "strategy/readable.h"
#include "survive/roster.h"
#include "watch/alarm_text.h"

namespace sluice::train {

namespace fs = std::filesystem;
using base::text;

namespace {

// Skips unchanged files: a new membership finds most files unchanged, and a disk takes its time to flush.
void keep_written(const fs::path& path, const std::string& content) {
  if (fs::exists(path) && base::read_file(path) == content) {
    base::remove_abandoned_parts(path);
  } else {
    base::write_file_atomically(path, content);
  }
}

}  // namespace

namespace {

// Figures of many ranks would fill most of a line, so only every tenth step has them.
report::StepRecord without_ranks(report::StepRecord step) {
  constexpr int64_t kFewRanks = 64;
  constexpr int64_t kSometimes = 10;
  if (step.ranks > kFewRanks && step.step % kSometimes != 0) step.figures = {};
  return step;
}

}  // namespace

namespace {

// Shown after the tokens per second of all ranks.
std::string per_device(const report::StepRecord& step) {
  if (step.ranks < 2) return "";
  const double each = step.tokens_per_s / static_cast<double>(step.ranks);
  return text(" (", base::human_count(std::llround(each)), " per device)");
}

// Further figures of a step that learns from rewards or preferences; empty for other steps.
std::string of_learning(const report::StepRecord& step) {
  char words[256] = "";
  if (step.reward) {
    const int64_t draws = step.sampling_rounds.value_or(1);
    const std::string drawn =
        draws > 1 ? text("  prompts ", step.groups_kept.value_or(0), " kept of ", draws, " draws") : "";
    std::snprintf(
        words, sizeof words,
        "  reward %.3f%s  response %.1f tokens (p99 %lld)  logprob diff %.0e  rollout %.1f ms by %s",
        *step.reward, drawn.c_str(), step.response_mean.value_or(0),
        static_cast<long long>(step.response_p99.value_or(0)), step.rollout_logprob_diff.value_or(0),
        report::milliseconds(step.rollout_ns.value_or(0) + step.reward_ns.value_or(0)),
        strategy::readable_text(step.rollout_strategy).c_str());
  } else if (step.reward_margin) {
    std::snprintf(words, sizeof words, "  margin %.3f  right %.1f %%", *step.reward_margin,
                  1e2 * step.accuracy.value_or(0));
  }
  return words;
}

}  // namespace

Reporter::Reporter(run::RunContext& run) : run_(run) {
  run.control().together("opening the run directory", [&] {
    if (run.rank() == 0) open_files();
  });
}

void Reporter::open_files() {
  if (!config_.log.metrics.empty()) {
    endpoint_ = std::make_unique<serve::MetricsEndpoint>(config_.log.metrics, "log.metrics");
    base::log_info(text("metrics at port ", endpoint_->port(), ", path /metrics"));
  }
  const fs::path& directory = config_.log.dir;
  const int64_t done = run_.start().state().step;
  base::make_directories(directory);
  checkpoint::prune(directory / "checkpoints", done, run::retention_of(config_.checkpoint));
  prune_mirror(done);
  describe_run();
  metrics_.emplace(report::MetricsWriter::Options{directory, config_.log.tensorboard, done});
  trackers_.emplace(config_.log, run_.options().tools);
  if (metrics_->missing_steps() == 0) return;
  base::log_warning(text((directory / "metrics.jsonl").string(), " has no line for the last ",
                         metrics_->missing_steps(), " of the ", done,
                         " steps that the checkpoint has behind it: losses of those are not shown"));
}

// The run goes on without its mirror, as when a save does not reach it.
void Reporter::prune_mirror(int64_t done) const {
  const config::CheckpointConfig& configured = config_.checkpoint;
  if (configured.mirror.empty()) return;
  try {
    checkpoint::prune(run_.options().locate(configured.mirror), done, run::retention_of(configured));
  } catch (const base::Error& error) {
    base::log_warning(text("old checkpoints stay in ", configured.mirror, ": ", error.what()));
  }
}

// Writes files beside the metrics: those needed to join or repeat the run.
void Reporter::describe_run() const {
  const fs::path& directory = config_.log.dir;
  keep_written(directory / "config.toml", config::to_toml(config_));
  keep_written(directory / "calibration.json", base::json_text(run_.planning().calibration(), 2) + "\n");
  // The local launcher replaces ranks itself, under its own secret.
  const run::RunOptions& options = run_.options();
  if (options.worker_context && options.launch.launcher != transport::Launcher::kSluice)
    survive::write_roster(directory, *options.worker_context);
}

// The run goes on when its files are deleted, with a warning: checkpoints among them are gone, too.
void Reporter::look_at_files() {
  if (!metrics_->take_restored()) return;
  base::log_warning(
      text((config_.log.dir / "metrics.jsonl").string(),
           " was deleted while the run went on, and is written anew with all of its lines; what "
           "else was deleted, checkpoints say, is gone until the run writes the next ones"));
  describe_run();
}

// 0: unknown, or no step is left.
int64_t Reporter::remaining_ns() {
  const int64_t first = run_.start().state().step + 1;
  const auto now = std::chrono::steady_clock::now();
  if (done_ <= first) {
    begin_ = now;
    return 0;
  }
  return base::left_ns(done_ - first, config_.train.steps - first,
                       std::chrono::nanoseconds(now - begin_).count());
}

// Guessing among all tokens loses ln(vocab). Steps that are too large lead far above it,
// where the softmax is certain of every token, right or wrong, and gradients vanish.
void Reporter::tell_of_lost_model(const report::StepRecord& step) {
  const bool of_tokens = config_.model.resolved && config_.model.resolved->has_vocabulary();
  if (!of_tokens || !step.loss || step.reward || step.reward_margin || told_of_lost_model_) return;
  const double guess = std::log(static_cast<double>(config_.model.resolved->vocab()));
  if (*step.loss < 2 * guess) return;
  told_of_lost_model_ = true;
  base::log_warning(text("step ", step.step + 1, " has a loss of ", *step.loss, " with a gradient norm of ",
                         std::abs(step.grad_norm), ", and guessing among ", config_.model.resolved->vocab(),
                         " tokens would have ", guess, ": optimizer.lr = ", config_.optimizer.lr,
                         " is probably too high"));
}

void Reporter::write(const report::StepRecord& step) {
  if (!metrics_) return;
  const auto writing = run_.activity().own(text("writing the metrics of step ", step.step));
  metrics_->write(without_ranks(step));
  done_ = step.step + 1;
  look_at_files();
  const int64_t left_ns = remaining_ns();
  char numbers[160];
  std::snprintf(numbers, sizeof numbers,
                "step %lld/%lld  loss %.4f  grad_norm %.3f  %7.1f ms (predicted %.1f)  %.0f tokens/s",
                static_cast<long long>(step.step + 1), static_cast<long long>(config_.train.steps),
                step.loss.value_or(0), std::abs(step.grad_norm), report::milliseconds(step.time_ns),
                report::milliseconds(step.predicted_ns), step.tokens_per_s);
  const std::string mfu = step.mfu ? text("  MFU ", base::human_percent(*step.mfu)) : "";
  const std::string eta = left_ns > 0 ? text("  eta ", base::human_duration(left_ns)) : "";
  base::log_info(text(numbers, per_device(step), mfu, of_learning(step), "  ",
                      strategy::readable_text(step.strategy), eta));
  for (const std::string& line : report::completion_lines(step.completions)) base::log_info(line);
  tell_of_lost_model(step);
  show_to_prometheus(step);
}

void Reporter::write(const std::vector<watch::Detector::Change>& changes, const report::StepRecord& step,
                     const graph::StepGraph& graph, const std::vector<double>& paces) const {
  if (!metrics_) return;
  for (const watch::Detector::Change& change : changes) {
    watch::Cost cost;
    if (change.begins && change.alarm.cause == watch::Cause::kSlowdown &&
        std::ssize(paces) == graph.world_size) {
      std::vector<double> without = paces;
      without[static_cast<size_t>(change.alarm.rank)] = 1;
      cost = {graph::makespan_at(graph, paces), graph::makespan_at(graph, without)};
    }
    // A slow rank that delays no other deserves no warning.
    constexpr int64_t kPartWorthAWarning = 50;
    const bool costs =
        cost.step_ns == 0 || cost.step_ns - cost.without_ns > cost.step_ns / kPartWorthAWarning;
    const std::string words = watch::to_text(change, step.figures, cost);
    change.begins&& costs ? base::log_warning(words) : base::log_info(words);
  }
}

// Faults here must not end the run.
void Reporter::show_to_prometheus(const report::StepRecord& step) {
  tokens_ += step.tokens;
  if (config_.log.prometheus.empty() && endpoint_ == nullptr) return;
  const std::string page = report::prometheus_text(step, tokens_);
  if (endpoint_ != nullptr) endpoint_->show(page);
  if (config_.log.prometheus.empty()) return;
  try {
    base::write_file_atomically(config_.log.prometheus, page);
  } catch (const base::Error& error) {
    if (!std::exchange(told_of_prometheus_, true))
      base::log_warning(text("log.prometheus is not written: ", error.what()));
  }
}

void Reporter::write(const std::vector<report::EvaluationMetrics>& of_sets) {
  if (!metrics_) return;
  for (const report::EvaluationMetrics& metrics : of_sets) {
    metrics_->write(metrics);
    std::string figures;
    for (const auto& [key, figure] : report::head_figures(metrics)) figures += text(", ", key, " ", figure);
    base::log_info(text("step ", metrics.step + 1, " validation loss",
                        metrics.set.empty() ? "" : " of " + metrics.set, " ", metrics.validation_loss,
                        " over ", metrics.targets, " targets",
                        metrics.reward ? text(", answers' reward ", *metrics.reward) : "", figures));
  }
}

void Reporter::close(const BestEvaluation& best) {
  if (!metrics_) return;
  write_report();
  trackers_->close();
  tell_next_commands(best);
}

namespace {

report::EndOfRun::Output output_of(config::HeadUse head) {
  using Output = report::EndOfRun::Output;
  switch (head) {
    case config::HeadUse::kNone: return Output::kText;
    case config::HeadUse::kEmbed: return Output::kEmbeddings;
    case config::HeadUse::kClassify:
    case config::HeadUse::kReward: return Output::kNumbers;
    case config::HeadUse::kTokens:
    case config::HeadUse::kValue: return Output::kTokenNumbers;
  }
  return Output::kText;
}

}  // namespace

// The last step of each run has a checkpoint, unless it was deleted.
void Reporter::tell_next_commands(const BestEvaluation& best) const {
  const auto has_checkpoint = [&](int64_t steps) {
    return fs::exists(config_.log.dir / "checkpoints" / text("step-", steps));
  };
  if (!has_checkpoint(done_)) return;
  using Model = report::EndOfRun::Model;
  report::EndOfRun end{.directory = config_.log.dir,
                       .steps_done = done_,
                       .steps = config_.train.steps,
                       .model = config_.lora.rank > 0 ? Model::kAdapters : Model::kWhole,
                       .output = output_of(config_.head.kind)};
  const transport::Launch& launch = run_.options().launch;
  if (launch.launcher == transport::Launcher::kSluice) end.local_ranks = launch.world_size;
  if (best.best() && best.best_step() != done_ && has_checkpoint(best.best_step()))
    end.best_step = best.best_step();
  for (const std::string& line : base::split(report::next_commands(end), '\n')) base::log_info(line);
}

// The report is made from files of the run directory, and can be made again (sluice report).
void Reporter::write_report() {
  const auto writing = run_.activity().own("writing the report");
  const bool nothing_left = run_.start().state().step >= config_.train.steps;
  if (nothing_left)
    base::log_info(text("all ", config_.train.steps, " steps are done already: raise train.steps to go on"));
  try {
    const report::RunData run = report::read_run(config_.log.dir);
    if (!nothing_left) {
      for (const std::string& line : base::split(report::closing_summary(run), '\n')) base::log_info(line);
    }
    if (run_.device().device().is_cuda())
      base::log_info(text("cuDNN's attention: ", ops::attention_report()));
    const fs::path page = config_.log.dir / "report.html";
    base::write_file_atomically(page, report::report_page(run));
    base::log_info(text("the report is ", page.string()));
  } catch (const base::Error& error) {
    base::log_warning(text("no report was written: ", error.what()));
  }
}

}  // namespace sluice::train
