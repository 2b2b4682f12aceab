#include "train/trainer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json_fields.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "checkpoint/save.h"
#include "ops/attention.h"
#include "ops/attention_count.h"
#include "report/closing_summary.h"
#include "report/page.h"
#include "report/plan_table.h"
#include "report/run_files.h"
#include "report/step_metrics.h"
#include "train/learning_rate.h"
#include "train/run_context.h"
#include "train/saver.h"
#include "train/step_trace.h"
#include "train/stop_signal.h"

namespace sluice::train {

namespace fs = std::filesystem;
using base::text;
using std::chrono::steady_clock;

namespace {

constexpr int64_t kNanosecondsPerMillisecond = 1'000'000;

double milliseconds(int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / static_cast<double>(kNanosecondsPerMillisecond);
}

int64_t elapsed_ns(steady_clock::time_point since) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(steady_clock::now() - since).count();
}

// What ranks tell each other between two steps, in words.
struct StepWord {
  int64_t next_step = 0;
  int64_t agreement = 0;
  int64_t failure = 0;  // exit status that planning it asks for
  int64_t stop = 0;
  int64_t pulled_bytes = 0;
  int64_t pushed_bytes = 0;
  int64_t ring_bytes = 0;
  int64_t share_bytes = 0;
  int64_t unfused_attention = 0;
  int64_t corpus_bytes = 0;
  int64_t peak_bytes = 0;
  int64_t link_exposed_ns = 0;
  int64_t gather_exposed_ns = 0;
  int64_t overhead_ns = 0;
  int64_t step_ns = 0;
  int64_t snapshot_ns = 0;
  int64_t blocked_ns = 0;  // by saves
  int64_t boundary = 0;    // somebody waits to join
  checkpoint::SaveWord save;
};

// This rank's measurements of a step, before which so many calls for attention had no fused kernel.
StepWord measured(const PreparedStep& step, const runtime::StepResult& result, int64_t unfused_before) {
  StepWord word;
  word.pulled_bytes = result.pulled_bytes;
  word.pushed_bytes = result.pushed_bytes;
  word.ring_bytes = result.exchange_bytes;
  word.share_bytes = result.share_bytes;
  word.unfused_attention = ops::unfused_attention_calls() - unfused_before;
  word.corpus_bytes = step.corpus_bytes;
  word.peak_bytes = result.peak_bytes;
  word.link_exposed_ns = result.timing.link_exposed_ns;
  word.gather_exposed_ns = result.gather_exposed_ns;
  word.overhead_ns = result.timing.overhead_ns();
  word.step_ns = result.timing.step_ns;
  return word;
}

// An epoch mostly finds its files as the one before left them, and a disk takes its time to flush.
void keep_written(const fs::path& path, const std::string& content) {
  if (!fs::exists(path) || base::read_file(path) != content) base::write_file_atomically(path, content);
}

// The upcoming step, nothing after the last one, or why planning it failed on this rank.
struct PlannedStep {
  std::unique_ptr<PreparedStep> step;
  std::exception_ptr failure;
};

PlannedStep planned(PlanAhead& ahead, Activity& activity) {
  const auto planning = activity.own("planning the next step");
  try {
    return {ahead.next(), nullptr};
  } catch (...) {
    return {nullptr, std::current_exception()};
  }
}

// Throws on all ranks if any failed to plan the upcoming step, or if their plans differ.
void throw_disagreement(Control& control, const std::vector<StepWord>& words, std::exception_ptr failure) {
  std::vector<int> statuses;
  for (const StepWord& word : words) statuses.push_back(static_cast<int>(word.failure));
  control.throw_if_any_failed("planning", statuses, failure);
  for (size_t other = 1; other < words.size(); ++other) {
    if (words[other].next_step == words[0].next_step && words[other].agreement == words[0].agreement)
      continue;
    const base::RunError difference(text("rank ", other, " planned step ", words[other].next_step,
                                         " otherwise than rank 0 (step ", words[0].next_step,
                                         "): all ranks need the same program, configuration and corpora"));
    const std::vector<int> all_failed(words.size(), difference.exit_status());
    control.throw_if_any_failed("planning", all_failed, std::make_exception_ptr(difference));
  }
}

// The same as a value.
std::exception_ptr disagreement(Control& control, const std::vector<StepWord>& words,
                                std::exception_ptr failure) {
  try {
    throw_disagreement(control, words, failure);
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

class Trainer::Impl {
 public:
  explicit Impl(TrainerOptions options) : run_(std::move(options)) {}

  RunContext& context() { return run_; }
  std::string describe_first_step();
  void run();

 private:
  void open_run_files();
  runtime::AdamW optimizer(int64_t step) const;
  report::StepMetrics metrics_of(const PreparedStep& step, const runtime::StepResult& result) const;
  // What the ranks know together between two steps.
  struct Agreement {
    bool stop = false;                        // somebody asked for it
    bool boundary = false;                    // the next step is another epoch's
    int64_t step_ns = 0;                      // on the slowest rank
    int64_t snapshot_ns = 0;                  // of the last one, likewise
    std::exception_ptr failure;               // why the upcoming step can't run; on every rank or none
    std::vector<checkpoint::SaveWord> saves;  // how far each rank is with the save under way
  };
  Agreement agree(const PlannedStep& upcoming, StepWord own, report::StepMetrics& metrics);
  struct StepEnd {
    Agreement agreement;
    bool last = false;
  };
  void train_steps(PlanAhead& ahead);
  void finish_save_under_way();
  void require_finite(const runtime::StepResult& result, int64_t step);
  runtime::StepResult train(const PreparedStep& step);
  bool evaluation_due(int64_t steps_done, bool last) const;
  void make_up_evaluation();
  void warn_without_targets(const runtime::StepResult& result, int64_t step) const;
  bool finish_step(const PreparedStep& step, const StepEnd& end);
  RunState state_at_start() const;
  void seal_if_due(const PreparedStep& step, const StepEnd& end);
  bool stop_requested();
  bool evaluate(int64_t after_step);
  std::optional<report::EvaluationMetrics> evaluate(const config::ValidationData& set, int64_t after_step);
  void try_longest();
  RunState state_behind(const PreparedStep& last) const;
  void report(const report::StepMetrics& metrics);
  void close_run_files();

  RunContext run_;  // starts no thread before it is opened
  StopSignal stop_signal_{[this] { run_.fail(base::RunError("stopped by a signal; nothing was saved")); }};
  const config::RunConfig& config_ = run_.config();
  std::unique_ptr<report::MetricsWriter> metrics_;  // rank 0
  std::optional<Saver> saver_;
  bool snapshot_beside_ = false;  // of the next step: one was begun
  steady_clock::time_point begin_ = steady_clock::now();
};

void Trainer::Impl::open_run_files() {
  run_.control().together("opening the run directory", [&] {
    if (run_.rank() != 0) return;
    base::make_directories(config_.log.dir);
    checkpoint::prune(config_.log.dir / "checkpoints", run_.resumed().step,
                      {config_.checkpoint.keep, config_.checkpoint.keep_hours});
    keep_written(config_.log.dir / "config.toml", config::to_toml(config_));
    keep_written(config_.log.dir / "calibration.json", base::json_text(run_.calibration(), 2) + "\n");
    // The local launcher replaces ranks itself, under a secret that nobody else has.
    if (run_.seat() && run_.launcher() != transport::Launcher::kSluice)
      write_roster(config_.log.dir, *run_.seat());
    metrics_ = std::make_unique<report::MetricsWriter>(
        report::MetricsWriter::Options{config_.log.dir, config_.log.tensorboard, run_.resumed().step});
    if (metrics_->missing_steps() > 0) {
      base::log_warning(text((config_.log.dir / "metrics.jsonl").string(), " has no line for ",
                             metrics_->missing_steps(), " of the ", run_.resumed().step,
                             " steps that the checkpoint has behind it: losses of those are not shown"));
    }
  });
}

// A sequence that nothing holds ends the run before its first step, not days later.
void Trainer::Impl::try_longest() {
  run_.control().together("planning the longest sequence", [&] {
    const StepInputs inputs = run_.planning();
    config::try_longest(inputs.planner, inputs.table, run_.data(), *inputs.link_plans);
  });
}

std::string Trainer::Impl::describe_first_step() {
  try_longest();
  config::PhasedSampler batches = run_.sampler();
  const corpus::Batch batch = batches.next();
  PreparedStep step;
  run_.control().together("planning the first step", [&] {
    const corpus::Blend& blend = run_.data().phases[batches.phase()].training;
    step = prepare_step(run_.planning(), blend, batch.step, batch.samples, graph::Purpose::kTrain);
  });
  run_.leave();
  return report::plan_table(step.plan, step.graph.makespan_ns);
}

runtime::AdamW Trainer::Impl::optimizer(int64_t step) const {
  const config::OptimizerConfig& configured = config_.optimizer;
  runtime::AdamW adam;
  adam.lr = learning_rate(configured, step, config_.train.steps);
  adam.beta1 = configured.betas[0];
  adam.beta2 = configured.betas[1];
  adam.eps = configured.eps;
  adam.weight_decay = configured.weight_decay;
  adam.clip = configured.clip;
  adam.update = step + 1;
  for (const config::GroupConfig& group : configured.groups) {
    // The same schedule, all of it in proportion.
    config::OptimizerConfig own = configured;
    own.lr = group.lr;
    if (configured.lr > 0) own.min_lr *= group.lr / configured.lr;
    adam.groups.push_back({learning_rate(own, step, config_.train.steps), group.weight_decay});
  }
  return adam;
}

// All that one rank knows of a step; agree() and the clock tell the rest.
report::StepMetrics Trainer::Impl::metrics_of(const PreparedStep& step,
                                              const runtime::StepResult& result) const {
  report::StepMetrics metrics;
  metrics.step = step.plan.step;
  metrics.loss = result.mean_loss();
  metrics.tokens = step.plan.tokens();
  metrics.sequences = static_cast<int64_t>(step.plan.sequences.size());
  metrics.strategy = strategy::to_text(step.plan.strategy());
  metrics.fallback = step.fallback;
  metrics.predicted_ms = milliseconds(step.graph.makespan_ns);
  metrics.predicted_peak_bytes = step.predicted_peak_bytes;
  metrics.planning_ms = milliseconds(step.plan.planning_ns);
  metrics.gap_ppm = step.plan.gap_ppm();
  metrics.grad_norm = result.gradient_norm;
  metrics.lr = optimizer(metrics.step).lr;
  metrics.epoch = run_.epoch();
  return metrics;
}

void Trainer::Impl::run() {
  try_longest();
  PlanAhead ahead(training_steps(run_.planning(), run_.data(), run_.sampler(), config_.train.steps));
  open_run_files();
  saver_.emplace(run_);
  run_.engine().store().set_before_update([this] {
    saver_->wait_for_snapshot();
    if (run_.buddies()) run_.buddies()->wait();
  });
  begin_ = steady_clock::now();
  stop_signal_.defer();
  const auto training = run_.activity().own("between two steps");
  make_up_evaluation();
  try {
    train_steps(ahead);
  } catch (...) {
    if (run_.control().failure_agreed()) finish_save_under_way();
    throw;
  }
  run_.leave();
  if (run_.seat()) run_.seat()->memory->set_done();
  if (run_.rank() != 0) return;
  if (run_.device().device.is_cuda()) base::log_info(text("cuDNN's attention: ", ops::attention_report()));
  close_run_files();
}

void Trainer::Impl::train_steps(PlanAhead& ahead) {
  std::unique_ptr<PreparedStep> step;
  bool stop = false;
  {
    PlannedStep first = planned(ahead, run_.activity());
    report::StepMetrics unused;
    const Agreement agreement = agree(first, {}, unused);
    if (agreement.failure) std::rethrow_exception(agreement.failure);
    stop = agreement.stop;
    step = std::move(first.step);
  }
  if (step && !stop && run_.buddies()) {
    run_.buddies()->begin(state_at_start());
    snapshot_beside_ = true;
  }
  while (step && !stop) {
    const auto begin = steady_clock::now();
    const int64_t unfused_before = ops::unfused_attention_calls();
    const runtime::StepResult result = train(*step);
    PlannedStep upcoming = planned(ahead, run_.activity());
    report::StepMetrics metrics = metrics_of(*step, result);
    if (std::exchange(snapshot_beside_, false)) metrics.snapshot_bytes = run_.buddies()->sent_bytes();
    const Agreement agreement = agree(upcoming, measured(*step, result, unfused_before), metrics);
    metrics.time_ms = milliseconds(elapsed_ns(begin));
    metrics.snapshot_ms = milliseconds(agreement.snapshot_ns);
    metrics.ranks = run_.control().world_size();
    metrics.tokens_per_s = static_cast<double>(metrics.tokens) / (metrics.time_ms / 1e3);
    report(metrics);
    if (std::ranges::find(config_.log.trace_steps, metrics.step) != config_.log.trace_steps.end()) {
      write_step_trace(run_.control(), step->graph, run_.cost(), result.timing, config_.log.dir,
                       run_.epoch());
    }
    require_finite(result, metrics.step);
    warn_without_targets(result, metrics.step);
    const StepEnd end{.agreement = agreement, .last = !upcoming.step};
    seal_if_due(*step, end);
    stop = finish_step(*step, end);
    if (agreement.boundary && !stop && upcoming.step) {
      saver_->finish();
      run_.buddies()->wait();
      run_.end_epoch("others wait to join");
    }
    step = std::move(upcoming.step);
  }
}

// What all ranks failed of leaves them the time to commit what they have copied already.
void Trainer::Impl::finish_save_under_way() {
  try {
    saver_->finish();
  } catch (const base::Error& error) {
    base::log_warning(error.what());
  }
}

// Whoever reads a finished run has its report at hand. It is made from what lies on disk, and can be made
// again.
void Trainer::Impl::close_run_files() {
  const auto writing = run_.activity().own("writing the report");
  const bool nothing_left = run_.resumed().step >= config_.train.steps;
  if (nothing_left) {
    base::log_info(
        text("all ", config_.train.steps, " steps are done already: raise train.steps to go on"));
  }
  try {
    const report::RunData data = report::read_run(config_.log.dir);
    if (!nothing_left) {
      for (const std::string& line : base::split(report::closing_summary(data), '\n')) base::log_info(line);
    }
    const fs::path page = config_.log.dir / "report.html";
    base::write_file_atomically(page, report::report_page(data));
    base::log_info(text("the report is ", page.string()));
  } catch (const base::Error& error) {
    base::log_warning(text("no report was written: ", error.what()));
  }
}

runtime::StepResult Trainer::Impl::train(const PreparedStep& step) {
  const auto running = run_.activity().nodes(text("running step ", step.plan.step));
  return run_.engine().train(step.graph, step.tokens, optimizer(step.plan.step));
}

// The update of such a step was left out, on all ranks, so what is saved is still good.
void Trainer::Impl::require_finite(const runtime::StepResult& result, int64_t step) {
  run_.control().together("checking the step", [&] {
    if (std::isfinite(result.loss_sum) && std::isfinite(result.gradient_norm)) return;
    throw base::RunError(text("step ", step, " has loss ", result.mean_loss(), " and gradient norm ",
                              result.gradient_norm,
                              ": resume from the last checkpoint with a lower optimizer.lr"));
  });
}

bool Trainer::Impl::evaluation_due(int64_t steps_done, bool last) const {
  const int64_t every = config_.train.eval_every;
  return every > 0 && (last || steps_done % every == 0);
}

// A stop leaves out the evaluation that its step was due; a run that continues makes up for it.
void Trainer::Impl::make_up_evaluation() {
  const int64_t done = run_.resumed().step;
  if (done == 0 || !evaluation_due(done, done >= config_.train.steps)) return;
  const int64_t missing = run_.rank() == 0 && !metrics_->was_evaluated() ? 1 : 0;
  if (run_.control().gather({&missing, 1})[0][0] != 0) evaluate(done - 1);
}

// A batch may be unlucky: its sequences cut in front of the tokens that count. The step goes on, so that the
// rate's and the sampler's course stay what they are without masks.
void Trainer::Impl::warn_without_targets(const runtime::StepResult& result, int64_t step) const {
  if (result.targets > 0 || run_.rank() != 0) return;
  base::log_warning(text("step ", step, " has no token that counts: the corpora's masks leave none, so its ",
                         "loss of 0 means nothing, and only momentum and weight decay moved the parameters"));
}

RunState Trainer::Impl::state_at_start() const {
  RunState state = run_.resumed();
  if (state.step > 0) state.corpora = run_.corpora_at(state.step - 1);
  state.calibration = run_.calibration();
  state.config = config::to_toml(config_);
  return state;
}

// What ends the run needs no snapshot: it is saved.
void Trainer::Impl::seal_if_due(const PreparedStep& step, const StepEnd& end) {
  Buddies* buddies = run_.buddies();
  const Agreement& agreement = end.agreement;
  if (buddies == nullptr || end.last || agreement.stop || agreement.failure) return;
  const int64_t done = step.plan.step + 1;
  if (!buddies->due(done) && !agreement.boundary) return;
  buddies->begin(state_behind(step));
  snapshot_beside_ = true;
  buddies->schedule(done, agreement.snapshot_ns, agreement.step_ns);
}

// Whether the run is to stop. Who asks for it may not leave much time: saving comes first then, and
// evaluation waits until the run continues. What ends the run, here or in the upcoming step's planning, takes
// none of the steps that were made.
bool Trainer::Impl::finish_step(const PreparedStep& step, const StepEnd& end) {
  saver_->advance(end.agreement.saves);
  const int64_t done = step.plan.step + 1;
  bool stop = end.agreement.stop;
  std::exception_ptr failure = end.agreement.failure;
  if (evaluation_due(done, end.last) && !stop && !failure) {
    try {
      stop = !evaluate(step.plan.step);
    } catch (...) {
      if (!run_.control().failure_agreed()) throw;
      failure = std::current_exception();  // of all ranks, which can still save together
    }
  }
  if ((config_.checkpoint.every > 0 && end.last) || stop || failure) {
    saver_->save_now(state_behind(step));
  } else if (saver_->due(done)) {
    saver_->save(state_behind(step));
  }
  if (failure) std::rethrow_exception(failure);
  return stop;
}

// Whether any rank was asked to stop. Collective.
bool Trainer::Impl::stop_requested() {
  const int64_t own = stop_signal_.requested() ? 1 : 0;
  const auto words = run_.control().gather({&own, 1});
  return std::ranges::any_of(words, [](const std::vector<int64_t>& word) { return word[0] != 0; });
}

// Compares the plan of the upcoming step, shares this step's measurements and the wish to stop.
Trainer::Impl::Agreement Trainer::Impl::agree(const PlannedStep& upcoming, StepWord own,
                                              report::StepMetrics& metrics) {
  own.next_step = upcoming.step ? upcoming.step->plan.step : -1;
  own.agreement = upcoming.step ? static_cast<int64_t>(upcoming.step->agreement) : 0;
  own.failure = exit_status_of(upcoming.failure);
  own.stop = stop_signal_.requested() ? 1 : 0;
  own.save = saver_->word();
  own.blocked_ns = saver_->take_blocked_ns();
  if (run_.buddies()) {
    own.snapshot_ns = run_.buddies()->spent_ns();
    own.boundary = run_.seat()->memory->boundary_is_asked() ? 1 : 0;
  }
  using RawWord = std::array<int64_t, sizeof(StepWord) / sizeof(int64_t)>;
  std::vector<StepWord> words;
  for (const auto& raw : run_.control().gather(std::bit_cast<RawWord>(own))) {
    RawWord word;
    std::ranges::copy(raw, word.begin());
    words.push_back(std::bit_cast<StepWord>(word));
  }
  Agreement agreement{.failure = disagreement(run_.control(), words, upcoming.failure)};
  for (const StepWord& word : words) {
    agreement.stop = agreement.stop || word.stop != 0;
    agreement.boundary = agreement.boundary || word.boundary != 0;
    agreement.step_ns = std::max(agreement.step_ns, word.step_ns);
    agreement.snapshot_ns = std::max(agreement.snapshot_ns, word.snapshot_ns);
    agreement.saves.push_back(word.save);
    metrics.pull_bytes += word.pulled_bytes;
    metrics.push_bytes += word.pushed_bytes;
    metrics.ring_bytes += word.ring_bytes;
    metrics.share_bytes += word.share_bytes;
    metrics.unfused_attention += word.unfused_attention;
    metrics.corpus_bytes += word.corpus_bytes;
    metrics.peak_bytes = std::max(metrics.peak_bytes, word.peak_bytes);
    metrics.link_exposed_ms = std::max(metrics.link_exposed_ms, milliseconds(word.link_exposed_ns));
    metrics.gather_exposed_ms = std::max(metrics.gather_exposed_ms, milliseconds(word.gather_exposed_ns));
    metrics.overhead_ms = std::max(metrics.overhead_ms, milliseconds(word.overhead_ns));
    metrics.checkpoint_blocked_ms = std::max(metrics.checkpoint_blocked_ms, milliseconds(word.blocked_ns));
  }
  return agreement;
}

// False when it was cut short by the wish to stop: then it has no result, of no set.
bool Trainer::Impl::evaluate(int64_t after_step) {
  const auto evaluating = run_.activity().own(text("evaluating after step ", after_step));
  std::vector<report::EvaluationMetrics> results;
  for (const config::ValidationData& set : run_.data().at(after_step).validation) {
    if (set.batches.empty()) continue;
    const auto result = evaluate(set, after_step);
    if (!result) return false;
    results.push_back(*result);
  }
  if (run_.rank() != 0) return true;
  for (const report::EvaluationMetrics& metrics : results) {
    metrics_->write(metrics);
    base::log_info(text("step ", after_step, " validation loss", metrics.set.empty() ? "" : " of " + metrics.set,
                        " ", metrics.validation_loss, " over ", metrics.targets, " targets"));
  }
  return true;
}

std::optional<report::EvaluationMetrics> Trainer::Impl::evaluate(const config::ValidationData& set,
                                                                 int64_t after_step) {
  double loss_sum = 0;
  int64_t targets = 0;
  std::string fallback;
  PlanAhead ahead(evaluation_steps(run_.planning(), set));
  for (size_t i = 0; i < set.batches.size(); ++i) {
    if (stop_requested()) return std::nullopt;
    std::unique_ptr<PreparedStep> step;
    run_.control().together("planning the evaluation", [&] { step = ahead.next(); });
    const auto running = run_.activity().nodes(text("evaluating after step ", after_step));
    const runtime::StepResult result = run_.engine().evaluate(step->graph, step->tokens);
    loss_sum += result.loss_sum;
    targets += result.targets;
    if (fallback.empty()) fallback = step->fallback;
  }
  report::EvaluationMetrics metrics;
  metrics.step = after_step;
  metrics.set = set.name;
  metrics.targets = targets;
  metrics.fallback = fallback;
  metrics.validation_loss = targets > 0 ? loss_sum / static_cast<double>(targets) : 0;
  return metrics;
}

RunState Trainer::Impl::state_behind(const PreparedStep& last) const {
  RunState state;
  state.step = last.plan.step + 1;
  state.sampler = last.sampler_after;
  state.corpora = run_.corpora_at(last.plan.step);
  state.calibration = run_.calibration();
  state.companions = run_.resumed().companions;
  state.config = config::to_toml(config_);
  return state;
}

void Trainer::Impl::report(const report::StepMetrics& metrics) {
  if (run_.rank() != 0) return;
  const auto writing = run_.activity().own(text("writing the metrics of step ", metrics.step));
  metrics_->write(metrics);
  const int64_t done = metrics.step + 1 - run_.resumed().step;
  const int64_t steps = config_.train.steps - run_.resumed().step;
  const int64_t left_ns = base::left_ns(done, steps, elapsed_ns(begin_));
  char numbers[160];
  std::snprintf(numbers, sizeof numbers,
                "step %lld (%lld of %lld)  loss %.4f  norm %.3f  %7.1f ms (predicted %.1f)  %.0f tokens/s",
                static_cast<long long>(metrics.step), static_cast<long long>(metrics.step + 1),
                static_cast<long long>(config_.train.steps), metrics.loss, metrics.grad_norm, metrics.time_ms,
                metrics.predicted_ms, metrics.tokens_per_s);
  const std::string eta = left_ns > 0 ? text("  eta ", base::human_duration(left_ns)) : "";
  base::log_info(text(numbers, "  ", metrics.strategy, eta));
}

Trainer::Trainer(TrainerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {
  try {
    impl_->context().guard([this] { impl_->context().open(); });
  } catch (...) {
    static_cast<void>(impl_.release());  // destructors would wait for peers that no longer answer
    throw;
  }
}
Trainer::~Trainer() = default;
std::string Trainer::describe_first_step() {
  std::string description;
  impl_->context().guard([&] { description = impl_->describe_first_step(); });
  return description;
}
void Trainer::run() {
  impl_->context().guard([this] { impl_->run(); });
  impl_->context().release_directory();
}
int Trainer::rank() const { return impl_->context().rank(); }

}  // namespace sluice::train
