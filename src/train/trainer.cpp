#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>
#include <utility>

#include "base/core_set.h"
#include "base/log.h"
#include "base/text.h"
#include "config/config_file.h"
#include "cost/model_flops.h"
#include "graph/step_prediction.h"
#include "layers/context.h"
#include "layers/policy_loss.h"
#include "learn/preferences.h"
#include "learn/rollouts.h"
#include "learn/samples.h"
#include "learn/student_responses.h"
#include "ops/attention_count.h"
#include "report/plan_table.h"
#include "run/learning_rate.h"
#include "run/run_context.h"
#include "run/saver.h"
#include "run/step_trace.h"
#include "run/text_groups.h"
#include "session/sampling.h"
#include "strategy/device_peaks.h"
#include "survive/start_notices.h"
#include "survive/stop_signal.h"
#include "train/device_choosing.h"
#include "train/expert_rebalancer.h"
#include "train/reporter.h"
#include "train/step_acts.h"
#include "train/step_agreement.h"
#include "train/straggler_monitor.h"
#include "train/validation.h"

namespace sluice::train {

using base::text;
using std::chrono::steady_clock;

namespace {

// Whether the run continues from a snapshot in memory, or after a loss
// of ranks. Then there are steps to save, however early a signal comes.
bool has_unsaved_steps(const run::RunOptions& options) {
  return options.membership_number() > 0 ||
         (options.worker_context && options.worker_context->membership.origin.step >= 0);
}

// The clock and counters at a step's start.
struct StepStart {
  steady_clock::time_point time = steady_clock::now();
  int64_t unfused_attention_calls = ops::unfused_attention_calls();
};

}  // namespace

class Trainer::Impl {
 public:
  explicit Impl(run::RunOptions options)
      : run_(std::move(options)),
        stop_signal_(
            std::in_place,
            [this] { run_.peers().fail(base::RunError("stopped by a signal; nothing was saved")); },
            survive::StopSignal::Options{.deferring = has_unsaved_steps(run_.options())}) {
    if (run_.options().worker_context && run_.options().worker_context->stop_asked) stop_signal_->request();
  }

  // For a run that could not begin: returns signals to the process.
  void leave_signals() { stop_signal_.reset(); }

  run::RunContext& context() { return run_; }
  std::string describe_first_step();
  void run();

 private:
  const config::RunConfig& config() const { return run_.config(); }
  // Whether the run trains on documents as they are.
  bool learns_from_corpora() const {
    return config().rl.algorithm == config::RlAlgorithm::kNone && !config().head.pairs() &&
           !config().generates();
  }
  void try_longest();
  std::unique_ptr<run::StepSource> step_source();
  void train_steps();
  std::unique_ptr<run::PreparedStep> first_step();
  UpcomingStep plan_next();
  runtime::AdamW optimizer(int64_t step) const;
  void prepare_prediction();
  int64_t predicted_ns(const run::PreparedStep& step);
  report::StepRecord record_of(const run::PreparedStep& step, const runtime::StepResult& result,
                               const StepStart& start);
  void tell_speed(const run::PreparedStep& step, const StepStart& start, const UpcomingStep& upcoming,
                  report::StepRecord& record) const;
  void tell_of_policy(const runtime::StepResult& result, report::StepRecord& record) const;
  StepAgreement agree(const UpcomingStep& upcoming, const runtime::StepResult& result,
                      report::StepRecord& record);
  StragglerMonitor::Findings watch_devices(const run::PreparedStep& step, const runtime::StepResult& result,
                                           const StepAgreement& agreement, report::StepRecord& record);
  void write_report(const run::PreparedStep& step, const runtime::StepResult& result,
                    const StragglerMonitor::Findings& found, const report::StepRecord& record);
  void check_finite(const run::PreparedStep& step, const runtime::StepResult& result,
                    const StepAgreement& agreement);
  void warn_without_targets(const runtime::StepResult& result, int64_t step) const;
  void begin_snapshot(const run::RunState& state);
  void begin_snapshot_if_due(const run::PreparedStep& step, const StepAgreement& agreement, bool boundary,
                             int64_t snapshot_ns);
  bool evaluate_and_save(const run::PreparedStep& step, const StepAgreement& agreement);
  void end_membership(std::optional<int> leaving_rank);
  void finish_save_under_way();
  run::RunState state_behind(int64_t steps, const std::optional<corpus::SamplerState>& sampler,
                             const base::Json& rollout) const;
  run::RunState state_behind(const run::PreparedStep& last) const;

  run::RunContext run_;  // starts no thread before it is opened
  std::optional<survive::StopSignal> stop_signal_;
  // The members below are made when the run begins.
  std::optional<graph::StepPrediction> prediction_;
  std::optional<StepActs> acts_;
  std::unique_ptr<learn::RolloutGenerator> generator_;  // for runs that learn from outputs, or show samples
  std::optional<learn::Samples> samples_;
  std::unique_ptr<run::StepSource> steps_;
  std::optional<Reporter> reporter_;
  std::optional<StragglerMonitor> straggler_monitor_;
  std::optional<ExpertRebalancer> experts_;
  std::optional<DeviceChoosing> devices_;
  std::optional<Validation> validation_;
  std::optional<run::Saver> saver_;
  std::optional<cost::ModelFlops> model_flops_;
  std::optional<double> peak_flops_per_ns_;       // sum over all ranks
  std::optional<survive::StartNotices> notices_;  // until the first step is done
  bool snapshot_beside_ = false;                  // whether a snapshot was begun beside the next step
  // The state of the data before the current step.
  std::optional<corpus::SamplerState> sampler_before_;
  base::Json rollout_before_;
  int64_t skipped_ = 0;         // updates left out
  int64_t skipped_in_row_ = 0;  // consecutive skipped updates at the end
};

namespace {

constexpr int64_t kMostSkippedInRow = 10;

bool is_finite(const runtime::StepResult& result) {
  return std::isfinite(result.loss_sum) && std::isfinite(result.gradient_norm);
}

}  // namespace

// A sequence that no strategy holds ends the run before its first step, not days later.
void Trainer::Impl::try_longest() {
  run_.control().together("planning the longest sequence", [&] {
    const run::StepInputs inputs = run_.planning().inputs();
    session::try_longest(inputs.planner, inputs.table, run_.start().data(), *inputs.link_plans,
                         inputs.earlier);
  });
}

std::string Trainer::Impl::describe_first_step() {
  prepare_prediction();
  acts_.emplace(run_);
  try_longest();
  session::PhasedSampler batches =
      learns_from_corpora() ? run_.start().sampler() : run_.start().data().sampler();
  const corpus::Batch batch = batches.next();
  run::PreparedStep step;
  run_.control().together("planning the first step", [&] {
    step =
        run::prepare_step(run_.planning().inputs(),
                          session::sequences_of(batch.samples, run_.planning().inputs().table.model.head()),
                          /*source=*/nullptr, batch.step, graph::Purpose::kTrain);
  });
  run_.peers().leave();
  return report::plan_table(step.plan, predicted_ns(step));
}

void Trainer::Impl::run() {
  if (run_.rank() == 0) notices_.emplace(run_.activity());
  prepare_prediction();
  acts_.emplace(run_);
  try_longest();
  if (config().generates() || config().train.sample_every > 0)
    generator_ = std::make_unique<learn::RolloutGenerator>(run_);
  if (config().train.sample_every > 0)
    run_.control().together("preparing samples", [&] { samples_.emplace(run_, *generator_); });
  steps_ = step_source();
  reporter_.emplace(run_);
  straggler_monitor_.emplace(run_);
  const cost::CostModel& cost = run_.planning().cost();
  model_flops_.emplace(cost.program(), cost.window());
  if (const auto each = strategy::peak_flops_per_ns(run_.device().name()))
    peak_flops_per_ns_ = *each * run_.control().world_size();
  experts_.emplace(run_.planning(), run_.control());
  devices_.emplace(run_.planning(), run_.start().data(), run_.engine(), run_.control());
  validation_.emplace(run_, *stop_signal_, *reporter_, config().rl.rolls_out() ? generator_.get() : nullptr);
  validation_->open_adapters();
  saver_.emplace(run_, acts_->critic());
  run_.engine().store().set_before_update([this](int bucket) {
    saver_->wait_until_copied(bucket);
    if (run_.snapshot_replicas()) run_.snapshot_replicas()->wait();
  });
  stop_signal_->defer();
  const auto training = run_.activity().own("between two steps");
  validation_->make_up();
  try {
    train_steps();
  } catch (...) {
    if (run_.control().failure_agreed()) finish_save_under_way();
    throw;
  }
  run_.peers().leave();
  if (run_.options().worker_context) run_.options().worker_context->memory->set_done();
  reporter_->close(validation_->best());
}

std::unique_ptr<run::StepSource> Trainer::Impl::step_source() {
  if (config().rl.rolls_out()) return std::make_unique<learn::Rollouts>(run_, *generator_, acts_->critic());
  if (config().generates()) return std::make_unique<learn::StudentResponses>(run_, *generator_);
  if (config().head.pairs()) return std::make_unique<run::TextGroups>(run_);
  if (!learns_from_corpora()) return std::make_unique<learn::Preferences>(run_);
  return std::make_unique<run::PlanAhead>(run::training_steps(run_.planning().inputs(), run_.start().data(),
                                                              run_.start().sampler(), config().train.steps));
}

// Each step, in its phases. Its data and its plan are prepared while the step before it runs.
void Trainer::Impl::train_steps() {
  for (std::unique_ptr<run::PreparedStep> step = first_step(); step != nullptr;) {
    const StepStart start;
    // Run: pull parameters, go forward and backward through the micro-batches, push gradients, update.
    const runtime::StepResult result = acts_->train(*step, optimizer(step->plan.step));

    // Plan: take the next step. Runs that learn from their own outputs generate its data here.
    UpcomingStep upcoming = plan_next();

    // Agree: ranks merge their figures, and decide together how to go on.
    report::StepRecord record = record_of(*step, result, start);
    const StepAgreement agreement = agree(upcoming, result, record);
    tell_speed(*step, start, upcoming, record);

    // Check: devices, the report to the user, and the numbers.
    const StragglerMonitor::Findings found = watch_devices(*step, result, agreement, record);
    write_report(*step, result, found, record);
    check_finite(*step, result, agreement);
    warn_without_targets(result, record.step);

    // Save: into peers' memory, evaluate, and write a checkpoint.
    const bool boundary = agreement.boundary || found.leaving_rank;
    begin_snapshot_if_due(*step, agreement, boundary, record.snapshot_ns);
    if (evaluate_and_save(*step, agreement)) return;
    if (boundary && !agreement.last) end_membership(found.leaving_rank);
    sampler_before_ = step->sampler_after;
    rollout_before_ = step->rollout_after;
    step = std::move(upcoming.step);
  }
}

// The first step that is left; null: there is none, or the run is stopped already.
std::unique_ptr<run::PreparedStep> Trainer::Impl::first_step() {
  UpcomingStep first = plan_next();
  report::StepRecord unused;
  const StepAgreement agreement = agree(first, {}, unused);
  if (agreement.failure) std::rethrow_exception(agreement.failure);
  const run::RunState& begun = run_.start().state();
  sampler_before_ = begun.sampler;
  rollout_before_ = begun.rollout;
  const auto resumed = [&] { return state_behind(begun.step, begun.sampler, begun.rollout); };
  if (agreement.stop) {
    if (run_.start().resumed().from_snapshot()) saver_->save_now(resumed());
    return nullptr;
  }
  if (first.step && run_.snapshot_replicas()) begin_snapshot(resumed());
  return std::move(first.step);
}

UpcomingStep Trainer::Impl::plan_next() {
  const auto planning = run_.activity().own("planning the next step");
  const auto begin = steady_clock::now();
  UpcomingStep upcoming;
  try {
    upcoming.step = steps_->next();
  } catch (...) {
    upcoming.failure = std::current_exception();
  }
  upcoming.waited = steady_clock::now() - begin;
  return upcoming;
}

// Watches for slow ranks, and measures loads of experts and times of products, for later plans.
StragglerMonitor::Findings Trainer::Impl::watch_devices(const run::PreparedStep& step,
                                                        const runtime::StepResult& result,
                                                        const StepAgreement& agreement,
                                                        report::StepRecord& record) {
  StragglerMonitor::Findings found =
      straggler_monitor_->observe(step, result, agreement.rank_statuses, record);
  experts_->observe(record.step, result);
  devices_->observe(record.step, result, agreement.rank_statuses);
  return found;
}

void Trainer::Impl::write_report(const run::PreparedStep& step, const runtime::StepResult& result,
                                 const StragglerMonitor::Findings& found, const report::StepRecord& record) {
  notices_.reset();
  reporter_->write(record);
  reporter_->write(found.changes, record, step.graph, straggler_monitor_->slowdowns());
  if (std::ranges::find(config().log.trace_steps, record.step) == config().log.trace_steps.end()) return;
  run::write_step_trace(run_.control(), acts_->traced(step, result), config().log.dir,
                        run_.options().membership_number());
}

// The run goes on in another membership, without the leaving rank or with those that wait.
void Trainer::Impl::end_membership(std::optional<int> leaving_rank) {
  saver_->finish();
  run_.snapshot_replicas()->wait();
  if (leaving_rank == run_.rank()) run_.options().worker_context->memory->set_leaving();
  run_.peers().end_membership(leaving_rank ? text("rank ", *leaving_rank, " leaves") : "others wait to join");
}

runtime::AdamW Trainer::Impl::optimizer(int64_t step) const {
  const config::OptimizerConfig& configured = config().optimizer;
  runtime::AdamW adam;
  adam.lr = run::learning_rate(configured, step, config().train.steps);
  adam.beta1 = configured.betas[0];
  adam.beta2 = configured.betas[1];
  adam.eps = configured.eps;
  adam.weight_decay = configured.weight_decay;
  adam.clip = configured.clip;
  adam.moe_router_bias_update_rate = config().train.moe_router_bias_update_rate;
  adam.update = step + 1;
  if (configured.name == config::OptimizerName::kMuon) {
    adam.muon = runtime::Muon{.momentum = configured.momentum,
                              .steps = configured.ns_steps,
                              .matches_adamw = configured.adjust_lr == config::MuonRate::kMatchRmsAdamW};
  }
  for (const config::GroupConfig& group : configured.groups) {
    // The same schedule, scaled in proportion.
    config::OptimizerConfig own = configured;
    own.lr = group.lr;
    if (configured.lr > 0) own.min_lr *= group.lr / configured.lr;
    adam.groups.push_back({run::learning_rate(own, step, config().train.steps), group.weight_decay});
  }
  return adam;
}

// Collective. A calibration by "auto" measures while all ranks compute. Machines count as alike.
void Trainer::Impl::prepare_prediction() {
  const int ranks = run_.options().launch.local_size;
  std::vector<base::CoreSet> cores = run_.control().gather(base::own_cores());
  cores.resize(std::min(cores.size(), static_cast<size_t>(ranks)));
  prediction_.emplace(graph::StepPrediction::Options{
      .ranks = ranks,
      .cores = run_.device().device().is_cpu() ? base::cores_together(cores) : 0,
      .measured = config().parallel.calibration == "auto"});
}

int64_t Trainer::Impl::predicted_ns(const run::PreparedStep& step) {
  return prediction_->ns(step.graph, straggler_monitor_ ? straggler_monitor_->deviation() : 0);
}

// Sets the figures that one rank knows by itself; agree() and the clock give the others.
void Trainer::Impl::tell_speed(const run::PreparedStep& step, const StepStart& start,
                               const UpcomingStep& upcoming, report::StepRecord& record) const {
  // Data that a run generates by itself is no part of its step.
  const std::chrono::nanoseconds between =
      learns_from_corpora() ? std::chrono::nanoseconds{} : upcoming.waited;
  record.time_ns = std::chrono::nanoseconds(steady_clock::now() - start.time - between).count();
  record.tokens_per_s = static_cast<double>(record.tokens) / (report::milliseconds(record.time_ns) / 1e3);
  record.mfu = cost::utilisation(model_flops_->of_plan(step.plan), record.time_ns, peak_flops_per_ns_);
}

report::StepRecord Trainer::Impl::record_of(const run::PreparedStep& step, const runtime::StepResult& result,
                                            const StepStart& start) {
  report::StepRecord record = step.known;
  record.step = step.plan.step;
  if (!record.loss) record.loss = result.mean_loss();
  tell_of_policy(result, record);
  if (run_.planning().inputs().table.model.has_mtp()) {
    const auto notes = std::span(result.notes).last(size_t{layers::LayerContext::kMtpNotes});
    if (notes[1] > 0) record.mtp_loss = notes[0] / notes[1];
  }
  if (config().head.labelled() && !result.notes.empty() && result.targets > 0)
    record.accuracy = result.notes.front() / static_cast<double>(result.targets);
  record.tokens = step.plan.tokens();
  record.sequences = static_cast<int64_t>(step.plan.sequences.size());
  record.strategy = strategy::to_text(step.plan.strategy());
  record.fallback = step.fallback;
  record.device = run_.device().name();
  record.degraded = run_.device().degraded();
  record.predicted_ns = predicted_ns(step);
  record.planning_ns = step.plan.planning_ns;
  record.gap_ppm = step.plan.gap_ppm();
  record.grad_norm = result.gradient_norm;
  record.lr = optimizer(record.step).lr;
  record.pull_bytes = result.pulled_bytes;
  record.push_bytes = result.pushed_bytes;
  record.cp_ep_bytes = result.exchange_bytes;
  record.fsdp_bytes = result.fsdp_bytes;
  record.expert_load_imbalance = result.expert_load_imbalance;
  record.corpus_bytes = step.corpus_bytes;
  record.pull_push_exposed_ns = result.timing.pull_push_exposed_ns;
  record.fsdp_exposed_ns = result.fsdp_exposed_ns;
  record.peak_bytes = result.peak_bytes;
  record.reserved_bytes = result.allocator.reserved_bytes;
  record.alloc_retries = result.allocator.retries;
  record.predicted_peak_bytes = step.predicted_peak_bytes;
  record.host_overhead_ns = result.timing.overhead_ns();
  record.restarts = run_.options().membership_number();
  acts_->describe(step, result, record);
  if (!is_finite(result)) ++skipped_;
  if (skipped_ > 0) record.skipped_updates = skipped_;
  record.unfused_attention = ops::unfused_attention_calls() - start.unfused_attention_calls;
  if (std::exchange(snapshot_beside_, false)) record.snapshot_bytes = run_.snapshot_replicas()->sent_bytes();
  return record;
}

void Trainer::Impl::tell_of_policy(const runtime::StepResult& result, report::StepRecord& record) const {
  if (!config().rl.rolls_out() || result.targets == 0) return;
  const auto mean = [&](layers::PolicyNote note) {
    return result.notes[static_cast<size_t>(note)] / static_cast<double>(result.targets);
  };
  record.clip_fraction = mean(layers::PolicyNote::kClipped);
  record.reference_kl = mean(layers::PolicyNote::kReferenceKl);
  record.rollout_logprob_diff = mean(layers::PolicyNote::kRolloutLogprobDiff);
}

StepAgreement Trainer::Impl::agree(const UpcomingStep& upcoming, const runtime::StepResult& result,
                                   report::StepRecord& record) {
  StepStatus own{.step_ns = result.timing.step_ns};
  own.rank_status = straggler_monitor_->status(result);
  own.stop = stop_signal_->requested() ? 1 : 0;
  own.save = saver_->status();
  record.checkpoint_blocked_ns = saver_->take_blocked_ns();
  if (run_.snapshot_replicas()) {
    record.snapshot_ns = run_.snapshot_replicas()->cost_ns();
    own.mtbf_ns = run_.options().worker_context->mtbf_ns();
    own.boundary = run_.options().worker_context->memory->boundary_is_asked() ? 1 : 0;
  }
  return train::agree(run_.control(), upcoming, own, record);
}

// All ranks skipped the update of such a step, so the parameters are as good as before.
void Trainer::Impl::check_finite(const run::PreparedStep& step, const runtime::StepResult& result,
                                 const StepAgreement& agreement) {
  skipped_in_row_ = is_finite(result) ? 0 : skipped_in_row_ + 1;
  if (skipped_in_row_ == 0) return;
  const int64_t number = step.plan.step;
  const std::string found = text("step ", number + 1, " has loss ", result.mean_loss(), " and gradient norm ",
                                 std::abs(result.gradient_norm));  // without the sign that a NaN may have
  const bool skips = config().train.on_nonfinite == config::OnNonfinite::kSkip;
  if (skips && skipped_in_row_ < kMostSkippedInRow) {
    if (run_.rank() == 0)
      base::log_warning(text(found, ": its update is left out (train.on_nonfinite); ", skipped_, " so far"));
    return;
  }
  const bool learnt = number > run_.start().state().step || run_.start().resumed().from_snapshot();
  if (learnt) {
    saver_->advance(agreement.saves);
    saver_->save_now(state_behind(number, sampler_before_, rollout_before_));
  }
  run_.control().together("checking the step", [&] {
    throw base::RunError(text(found, skips ? text(", as have the ", kMostSkippedInRow - 1, " before it") : "",
                              learnt ? text("; the steps before it are saved as step-", number) : "",
                              ": resume with a lower optimizer.lr",
                              skips ? "" : ", or with train.on_nonfinite = \"skip\" to leave its batch out"));
  });
}

void Trainer::Impl::warn_without_targets(const runtime::StepResult& result, int64_t step) const {
  // A batch may be unlucky: its sequences are cut before the tokens that count. The step
  // goes on, so that learning rate and sampler take the same course as without masks.
  if (result.targets > 0 || run_.rank() != 0) return;
  base::log_warning(text("step ", step + 1,
                         " has no token that counts: the corpora's masks leave none, so its ",
                         "loss of 0 means nothing, and only momentum and weight decay moved the parameters"));
}

void Trainer::Impl::begin_snapshot(const run::RunState& state) {
  run_.snapshot_replicas()->begin(state);
  snapshot_beside_ = true;
}

// If the run ends now, no snapshot is needed: the run is saved.
void Trainer::Impl::begin_snapshot_if_due(const run::PreparedStep& step, const StepAgreement& agreement,
                                          bool boundary, int64_t snapshot_ns) {
  run::SnapshotReplicas* replicas = run_.snapshot_replicas();
  if (replicas == nullptr || agreement.last || agreement.stop || agreement.failure) return;
  const int64_t done = step.plan.step + 1;
  if (!replicas->due(done) && !boundary) return;
  begin_snapshot(state_behind(step));
  replicas->schedule(done, snapshot_ns, agreement.step_ns, agreement.mtbf_ns);
}

// Whether the run must stop. A stop request may leave little time, so
// saving comes first, and evaluation waits until the run continues. Ending
// the run, here or in the upcoming step's planning, loses no finished step.
bool Trainer::Impl::evaluate_and_save(const run::PreparedStep& step, const StepAgreement& agreement) {
  saver_->advance(agreement.saves);
  const int64_t done = step.plan.step + 1;
  bool stop = agreement.stop;
  std::exception_ptr failure = agreement.failure;
  bool best = false;
  if (validation_->due(done, agreement.last) && !stop && !failure) {
    try {
      stop = !validation_->evaluate(step.plan.step) || validation_->is_out_of_patience();
      best = validation_->best().is_best();
    } catch (...) {
      if (!run_.control().failure_agreed()) throw;
      failure = std::current_exception();  // on all ranks, which can still save together
    }
  }
  if (samples_ && samples_->due(done, agreement.last) && !stop && !failure) samples_->log(step.plan.step);
  if (agreement.last || stop || failure) {
    saver_->save_now(state_behind(step));
  } else if (best && config().checkpoint.keep_best) {
    saver_->finish();
    saver_->save(state_behind(step));
  } else if (saver_->due(done)) {
    saver_->save(state_behind(step));
  }
  saver_->begin_differences_anew(done);
  if (failure) std::rethrow_exception(failure);
  return stop;
}

// A failure on all ranks leaves them time to commit what is copied already.
void Trainer::Impl::finish_save_under_way() {
  try {
    saver_->finish();
  } catch (const base::Error& error) {
    base::log_warning(error.what());
  }
}

run::RunState Trainer::Impl::state_behind(int64_t steps, const std::optional<corpus::SamplerState>& sampler,
                                          const base::Json& rollout) const {
  run::RunState state;
  state.step = steps;
  state.sampler = sampler;
  state.rollout = rollout;
  if (steps > 0) state.corpora = run_.start().corpora_at(steps - 1);
  state.calibration = run_.planning().calibration();
  state.companions = run_.start().state().companions;
  state.evaluation = validation_ ? validation_->best().to_json() : run_.start().state().evaluation;
  state.config = config::to_toml(config());
  return state;
}

run::RunState Trainer::Impl::state_behind(const run::PreparedStep& last) const {
  return state_behind(last.plan.step + 1, last.sampler_after, last.rollout_after);
}

Trainer::Trainer(run::RunOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {
  try {
    impl_->context().peers().guard([this] { impl_->context().open(); });
  } catch (...) {
    impl_->leave_signals();
    static_cast<void>(impl_.release());  // destructors would wait for peers that no longer answer
    throw;
  }
}
Trainer::~Trainer() = default;
std::string Trainer::describe_first_step() {
  std::string description;
  impl_->context().peers().guard([&] { description = impl_->describe_first_step(); });
  return description;
}
void Trainer::run() {
  impl_->context().peers().guard([this] { impl_->run(); });
  impl_->context().peers().release_directory();
}

}  // namespace sluice::train
