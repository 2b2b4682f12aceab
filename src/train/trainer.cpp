#include "train/trainer.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/hugging_face.h"
#include "checkpoint/save.h"
#include "ops/device.h"
#include "profile/device.h"
#include "report/plan_table.h"
#include "report/step_metrics.h"
#include "runtime/engine.h"
#include "runtime/make_executor.h"
#include "train/calibration.h"
#include "train/candidates.h"
#include "train/checkpoints.h"
#include "train/control.h"
#include "train/data.h"
#include "train/learning_rate.h"
#include "train/plan_ahead.h"
#include "train/precision.h"
#include "train/step_trace.h"
#include "train/stop_signal.h"
#include "transport/device_transport.h"
#include "transport/gloo.h"
#include "transport/heartbeat.h"

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

base::Error describe(std::exception_ptr failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const base::Error& error) {
    return error;
  } catch (const std::exception& error) {
    return base::RunError(error.what());
  }
}

// What ranks tell each other between two steps, in words.
struct StepWord {
  int64_t next_step = 0;
  int64_t agreement = 0;
  int64_t failure = 0;  // exit status that planning it asks for
  int64_t stop = 0;
  int64_t pulled_bytes = 0;
  int64_t pushed_bytes = 0;
  int64_t peak_bytes = 0;
  int64_t link_exposed_ns = 0;
  int64_t overhead_ns = 0;
};

// The upcoming step, nothing after the last one, or why planning it failed on this rank.
struct PlannedStep {
  std::unique_ptr<PreparedStep> step;
  std::exception_ptr failure;
};

PlannedStep planned(PlanAhead& ahead) {
  try {
    return {ahead.next(), nullptr};
  } catch (...) {
    return {nullptr, std::current_exception()};
  }
}

// What the configuration may ask for and no step does yet must not be passed over in silence.
void refuse_memory_policies(const config::MemoryConfig& memory) {
  const bool offloads = memory.offload != "auto" && memory.offload != "0";
  if (memory.recompute != "full" && !offloads) return;
  throw base::InputError(text("[config] memory.", offloads ? "offload" : "recompute", " is ",
                              offloads ? memory.offload : memory.recompute,
                              ": activations are always kept for now; set it to auto"));
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

}  // namespace

class Trainer::Impl {
 public:
  explicit Impl(TrainerOptions options) : options_(std::move(options)) {}

  // Runs `action`; lets the other ranks know if it fails.
  template <typename Action>
  void guard(Action action);
  void open();
  int rank() const { return options_.launch.rank; }
  std::string describe_first_step();
  void run();

 private:
  void leave();
  void meet();
  void compare_configurations();
  void open_checkpoint();
  void take_proposal_of_checkpoint();
  void open_device();
  comm::Transport& device_transport() { return device_transport_ ? *device_transport_ : *transport_; }
  void open_parameters();
  void open_run_files();
  void load_initial_weights();
  std::unique_ptr<runtime::Executor> make_executor();
  void end_process(std::exception_ptr failure);
  void end_process(const transport::Loss& loss);

  PlanningInputs planning(const corpus::Blend& blend) const {
    return {blend, *planner_, table_, options_.launch.world_size, rank(), link_plans_.get()};
  }
  corpus::Sampler sampler() const;
  runtime::AdamW optimizer(int64_t step) const;
  runtime::StepResult run_step(const PreparedStep& step);
  bool agree(const PlannedStep& upcoming, const runtime::StepResult& result, report::StepMetrics& metrics);
  struct StepEnd {
    bool stop = false;  // somebody asked for it
    bool last = false;
  };
  void require_finite(const runtime::StepResult& result, int64_t step);
  void finish_step(const PreparedStep& step, StepEnd end);
  void evaluate(int64_t step);
  void save(const PreparedStep& last);
  void report(const report::StepMetrics& metrics);

  TrainerOptions options_;
  config::RunConfig& config_ = options_.config;
  StopSignal stop_signal_{
      [this] { options_.end_process(base::RunError("stopped by a signal; nothing was saved")); }};
  std::unique_ptr<comm::Transport> transport_;         // between hosts
  std::unique_ptr<comm::Transport> device_transport_;  // between GPUs; null on the CPU
  profile::RankDevice device_;
  std::unique_ptr<Control> control_;
  std::unique_ptr<transport::Heartbeat> heartbeat_;
  std::optional<Data> data_;
  model::ParameterTable table_;
  std::unique_ptr<checkpoint::Checkpoint> checkpoint_;
  RunState resumed_;  // zero without a checkpoint
  cost::Calibration calibration_;
  base::Json calibration_json_;
  std::optional<plan::Planner> planner_;
  std::unique_ptr<graph::LinkPlans> link_plans_ = std::make_unique<graph::LinkPlans>();
  std::unique_ptr<runtime::Engine> engine_;
  std::unique_ptr<report::MetricsWriter> metrics_;  // rank 0
  report::RunSummary summary_;
  steady_clock::time_point begin_ = steady_clock::now();
};

template <typename Action>
void Trainer::Impl::guard(Action action) {
  try {
    action();
  } catch (...) {
    if (!heartbeat_) throw;  // the ranks have not met
    if (!control_->failure_agreed()) end_process(std::current_exception());
    heartbeat_->goodbye();
    throw;
  }
}

void Trainer::Impl::meet() {
  const int64_t join_timeout_ns = config_.train.join_timeout_s * 1'000'000'000;
  transport::GlooOptions gloo;
  gloo.launch = options_.launch;
  gloo.join_timeout_ns = join_timeout_ns;
  transport_ = transport::gloo_transport(gloo);
  control_ = std::make_unique<Control>(*transport_);
  transport::HeartbeatOptions heartbeat;
  heartbeat.address = transport::own_address(gloo);
  heartbeat.join_timeout_ns = join_timeout_ns;
  heartbeat.on_lost = [this](const transport::Loss& loss) { end_process(loss); };
  heartbeat_ = std::make_unique<transport::Heartbeat>(control_->communicator(), std::move(heartbeat));
}

void Trainer::Impl::open() {
  meet();
  control_->together("reading the configuration", [&] {
    if (options_.failure) std::rethrow_exception(options_.failure);
    refuse_memory_policies(config_.memory);
    config::resolve_model(config_);
    table_ = model::parameter_table(*config_.model.shape);
    configured_strategies(config_, options_.launch.world_size);
    data_ = open_data(config_);
  });
  compare_configurations();
  open_checkpoint();
  open_device();
  calibration_ = calibrate({config_, resumed_.calibration, precision_of(config_.train.dtype), device_.device,
                            device_.memory_bytes},
                           device_transport(), *control_);
  calibration_json_ = cost::to_json(calibration_, {}, options_.launch.world_size);
  control_->together("planning", [&] {
    planner_ =
        make_planner(config_, *data_, cost::CostModel(calibration_.options), options_.launch.world_size);
    config_.parallel.strategies.clear();  // "auto" is resolved from here on
    for (const strategy::Strategy& candidate : planner_->options().candidates) {
      config_.parallel.strategies.push_back(strategy::to_text(candidate));
    }
  });
  open_parameters();
}

// Everything that decides the numbers must be the same on all ranks: a different learning rate would train
// each owner slice differently, a different eval_every would pair up different collectives.
void Trainer::Impl::compare_configurations() {
  config::RunConfig shared = config_;
  shared.train.threads = 0;
  shared.log = {};
  shared.log.trace_steps = config_.log.trace_steps;
  const auto own = static_cast<int64_t>(base::hash_bytes(config::to_toml(shared)));
  const auto words = control_->gather({&own, 1});
  control_->together("comparing configurations", [&] {
    for (size_t other = 1; other < words.size(); ++other) {
      if (words[other] == words[0]) continue;
      throw base::InputError(text("rank ", other,
                                  " has another configuration than rank 0: give all ranks the same "
                                  "file and --set options"));
    }
  });
}

// Rank 0 decides which checkpoint: on a shared file system others may see an older directory.
void Trainer::Impl::open_checkpoint() {
  std::string directory;
  control_->together("looking for a checkpoint", [&] {
    if (rank() != 0) return;
    const fs::path root = config_.log.dir / "checkpoints";
    if (const auto found = find_checkpoint(options_.resume, root)) directory = found->string();
    if (options_.resume.empty() && !options_.dry_run && checkpoint::latest(root)) {
      throw base::InputError(text(root.string(),
                                  " holds checkpoints of an earlier run: continue it with --resume "
                                  "auto, or set another log.dir"));
    }
  });
  directory = control_->broadcast(directory);
  control_->together("opening the checkpoint", [&] {
    if (directory.empty()) return;
    checkpoint_ = std::make_unique<checkpoint::Checkpoint>(directory);
    resumed_ = run_state(*checkpoint_);
    take_proposal_of_checkpoint();
  });
}

// A proposal depends on free memory and the moment; a run that continues on as many ranks keeps its own.
void Trainer::Impl::take_proposal_of_checkpoint() {
  const bool same_ranks = checkpoint_->manifest().world_size == options_.launch.world_size;
  if (!config_.parallel.strategies.empty() || resumed_.config.empty() || !same_ranks) return;
  config_.parallel.strategies = config::parse_config(resumed_.config, "the checkpoint").parallel.strategies;
}

// This rank's device, and one figure for the memory that any rank may use: plans depend on it. A run that
// continues keeps the figure it began with, unless the configuration names one.
void Trainer::Impl::open_device() {
  control_->together("choosing the device", [&] {
    device_ = profile::rank_device(config_.train, config_.memory, options_.launch);
    ops::prepare_device(device_.device);
  });
  at::set_num_threads(device_.threads);  // for all threads: another one's number would reach this one
  for (const auto& words : control_->gather(std::span<const int64_t>(&device_.memory_bytes, 1))) {
    device_.memory_bytes = std::min(device_.memory_bytes, words[0]);
  }
  if (config_.memory.device_gib == 0 && !resumed_.calibration.is_null()) {
    const cost::Calibration earlier =
        cost::calibration_from_json(resumed_.calibration, "the checkpoint's calibration");
    device_.memory_bytes = earlier.options.memory.device_bytes;
  }
  if (device_.device.is_cpu()) return;
  transport::DeviceTransportOptions options;
  options.device = device_.device.index();
  device_transport_ = transport::device_transport(*transport_, options);
}

std::unique_ptr<runtime::Executor> Trainer::Impl::make_executor() {
  runtime::HostExecutor::Options executor;
  executor.on_failure = [this](std::exception_ptr failure) { end_process(failure); };
  return runtime::make_executor(device_.device, std::move(executor));
}

void Trainer::Impl::open_parameters() {
  runtime::Engine::Options engine;
  engine.precision = precision_of(config_.train.dtype);
  engine.context_length = config_.data.context_length;
  engine.device = device_.device;
  engine.host_transport = transport_.get();
  engine_ = std::make_unique<runtime::Engine>(table_, planner_->options().candidates, device_transport(),
                                              make_executor(), engine);
  control_->together("loading the parameters", [&] {
    if (checkpoint_) {
      load_parameters(*checkpoint_, engine_->store());
    } else {
      load_initial_weights();
    }
  });
  checkpoint_.reset();  // it keeps the files it read mapped
}

void Trainer::Impl::open_run_files() {
  control_->together("opening the run directory", [&] {
    if (rank() != 0) return;
    base::make_directories(config_.log.dir);
    base::write_file_atomically(config_.log.dir / "config.toml", config::to_toml(config_));
    base::write_json(config_.log.dir / "calibration.json", calibration_json_);
    metrics_ = std::make_unique<report::MetricsWriter>(
        report::MetricsWriter::Options{config_.log.dir, config_.log.tensorboard, resumed_.step});
  });
}

void Trainer::Impl::load_initial_weights() {
  if (config_.model.hf.empty() || !checkpoint::has_hugging_face_weights(config_.model.hf)) {
    return runtime::initialize(engine_->store(), static_cast<uint64_t>(config_.data.seed));
  }
  const checkpoint::HuggingFaceModel weights(config_.model.hf);
  runtime::load_masters(engine_->store(), [&](int bucket, base::Interval interval, float* values) {
    weights.read(bucket, interval, values);
  });
}

// A node failed. An operation with a lost peer may fail before the news of the loss is here: then the peer is
// to blame, and otherwise the others must learn that this rank is.
void Trainer::Impl::end_process(std::exception_ptr failure) {
  constexpr int64_t kNewsNs = 2'000'000'000;
  const base::Error error = describe(failure);
  const int64_t news_ns = options_.launch.world_size > 1 ? kNewsNs : 0;
  if (const auto loss = heartbeat_->wait_for_loss(news_ns)) end_process(*loss);
  heartbeat_->report_failure(error.what(), error.exit_status());
  options_.end_process(error);
}

void Trainer::Impl::end_process(const transport::Loss& loss) {
  if (loss.reported) options_.end_process(QuietError(loss.text, loss.exit_status));
  options_.end_process(base::RunError(loss.text));
}

corpus::Sampler Trainer::Impl::sampler() const {
  corpus::Sampler sampler = data_->sampler();
  if (resumed_.sampler) sampler.restore(*resumed_.sampler);
  return sampler;
}

std::string Trainer::Impl::describe_first_step() {
  corpus::Sampler batches = sampler();
  const corpus::Batch batch = batches.next();
  PreparedStep step;
  control_->together("planning the first step", [&] {
    step = prepare_step(planning(data_->training), batch.step, batch.samples, graph::Purpose::kTrain);
  });
  leave();
  return report::plan_table(step.plan, step.graph.makespan_ns);
}

// Nobody goes before all are done: who ends without a word is taken for lost.
void Trainer::Impl::leave() {
  control_->barrier();
  heartbeat_->goodbye();
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
  return adam;
}

runtime::StepResult Trainer::Impl::run_step(const PreparedStep& step) {
  return engine_->train(step.graph, step.tokens, optimizer(step.plan.step));
}

void Trainer::Impl::run() {
  open_run_files();
  begin_ = steady_clock::now();
  stop_signal_.defer();
  PlanAhead ahead(planning(data_->training), sampler(), config_.train.steps);
  std::unique_ptr<PreparedStep> step;
  bool stop = false;
  {
    PlannedStep first = planned(ahead);
    report::StepMetrics unused;
    stop = agree(first, {}, unused);
    step = std::move(first.step);
  }
  while (step && !stop) {
    const auto begin = steady_clock::now();
    const runtime::StepResult result = run_step(*step);
    PlannedStep upcoming = planned(ahead);
    report::StepMetrics metrics;
    stop = agree(upcoming, result, metrics);
    metrics.step = step->plan.step;
    metrics.loss = result.mean_loss();
    metrics.tokens = step->plan.tokens();
    metrics.sequences = static_cast<int64_t>(step->plan.sequences.size());
    metrics.strategy = strategy::to_text(step->plan.strategy());
    metrics.time_ms = milliseconds(elapsed_ns(begin));
    metrics.predicted_ms = milliseconds(step->graph.makespan_ns);
    metrics.planning_ms = milliseconds(step->plan.planning_ns);
    metrics.gap_ppm = step->plan.gap_ppm();
    metrics.grad_norm = result.gradient_norm;
    metrics.lr = optimizer(metrics.step).lr;
    metrics.tokens_per_s = static_cast<double>(metrics.tokens) / (metrics.time_ms / 1e3);
    report(metrics);
    if (std::ranges::find(config_.log.trace_steps, metrics.step) != config_.log.trace_steps.end()) {
      write_step_trace(*control_, step->graph, result.timing, config_.log.dir);
    }
    require_finite(result, metrics.step);
    finish_step(*step, {.stop = stop, .last = !upcoming.step});
    step = std::move(upcoming.step);
  }
  leave();
  if (rank() != 0) return;
  const bool nothing_left = resumed_.step >= config_.train.steps;
  base::log_info(
      nothing_left ? text("all ", config_.train.steps, " steps are done already: raise train.steps to go on")
                   : summary_.text());
}

// The update of such a step was left out, on all ranks, so what is saved is still good.
void Trainer::Impl::require_finite(const runtime::StepResult& result, int64_t step) {
  control_->together("the step", [&] {
    if (std::isfinite(result.loss_sum) && std::isfinite(result.gradient_norm)) return;
    throw base::RunError(text("step ", step, " has loss ", result.mean_loss(), " and gradient norm ",
                              result.gradient_norm,
                              ": resume from the last checkpoint with a lower optimizer.lr"));
  });
}

// Who asked to stop may not leave much time: saving comes first then, and evaluation is left out.
void Trainer::Impl::finish_step(const PreparedStep& step, StepEnd end) {
  const int64_t done = step.plan.step + 1;
  const auto due = [&](int64_t every) { return every > 0 && (done % every == 0 || end.last); };
  if (due(config_.train.eval_every) && !end.stop) evaluate(step.plan.step);
  if (due(config_.checkpoint.every) || end.stop) save(step);
}

// Compares the plan of the upcoming step, shares this step's measurements and the wish to stop. True when any
// rank wants to stop.
bool Trainer::Impl::agree(const PlannedStep& upcoming, const runtime::StepResult& result,
                          report::StepMetrics& metrics) {
  StepWord own;
  own.next_step = upcoming.step ? upcoming.step->plan.step : -1;
  own.agreement = upcoming.step ? static_cast<int64_t>(upcoming.step->agreement) : 0;
  own.failure = exit_status_of(upcoming.failure);
  own.stop = stop_signal_.requested() ? 1 : 0;
  own.pulled_bytes = result.pulled_bytes;
  own.pushed_bytes = result.pushed_bytes;
  own.peak_bytes = result.peak_bytes;
  own.link_exposed_ns = result.timing.link_exposed_ns;
  own.overhead_ns = result.timing.overhead_ns();
  using RawWord = std::array<int64_t, sizeof(StepWord) / sizeof(int64_t)>;
  std::vector<StepWord> words;
  for (const auto& raw : control_->gather(std::bit_cast<RawWord>(own))) {
    RawWord word;
    std::ranges::copy(raw, word.begin());
    words.push_back(std::bit_cast<StepWord>(word));
  }
  throw_disagreement(*control_, words, upcoming.failure);
  bool stop = false;
  for (const StepWord& word : words) {
    stop = stop || word.stop != 0;
    metrics.pull_bytes += word.pulled_bytes;
    metrics.push_bytes += word.pushed_bytes;
    metrics.peak_bytes = std::max(metrics.peak_bytes, word.peak_bytes);
    metrics.link_exposed_ms = std::max(metrics.link_exposed_ms, milliseconds(word.link_exposed_ns));
    metrics.overhead_ms = std::max(metrics.overhead_ms, milliseconds(word.overhead_ns));
  }
  return stop;
}

void Trainer::Impl::evaluate(int64_t step) {
  if (!data_->validation || data_->validation->batches.empty()) return;
  double loss_sum = 0;
  int64_t targets = 0;
  for (const corpus::Batch& batch : data_->validation->batches) {
    PreparedStep prepared;
    control_->together("planning the evaluation", [&] {
      prepared = prepare_step(planning(data_->validation->blend), batch.step, batch.samples,
                              graph::Purpose::kEvaluate);
    });
    const runtime::StepResult result = engine_->evaluate(prepared.graph, prepared.tokens);
    loss_sum += result.loss_sum;
    targets += result.targets;
  }
  report::EvaluationMetrics metrics;
  metrics.step = step;
  metrics.targets = targets;
  metrics.validation_loss = targets > 0 ? loss_sum / static_cast<double>(targets) : 0;
  if (rank() != 0) return;
  metrics_->write(metrics);
  summary_.add(metrics);
  base::log_info(
      text("step ", step, " validation loss ", metrics.validation_loss, " over ", targets, " targets"));
}

void Trainer::Impl::save(const PreparedStep& last) {
  RunState state;
  state.step = last.plan.step + 1;
  state.sampler = last.sampler_after;
  state.calibration = calibration_json_;
  state.config = config::to_toml(config_);
  save_checkpoint(*control_, engine_->store(), state, config_.log.dir / "checkpoints",
                  config_.checkpoint.keep);
  if (rank() == 0) base::log_info(text("saved checkpoint after ", state.step, " steps"));
}

void Trainer::Impl::report(const report::StepMetrics& metrics) {
  if (rank() != 0) return;
  metrics_->write(metrics);
  summary_.add(metrics);
  const int64_t done = metrics.step + 1 - resumed_.step;
  const int64_t left_ns = elapsed_ns(begin_) * (config_.train.steps - metrics.step - 1) / done;
  char numbers[160];
  std::snprintf(numbers, sizeof numbers,
                "step %lld/%lld  loss %.4f  norm %.3f  %7.1f ms (predicted %.1f)  %.0f tokens/s",
                static_cast<long long>(metrics.step + 1), static_cast<long long>(config_.train.steps),
                metrics.loss, metrics.grad_norm, metrics.time_ms, metrics.predicted_ms, metrics.tokens_per_s);
  base::log_info(text(numbers, "  ", metrics.strategy, "  eta ", base::human_duration(left_ns)));
}

Trainer::Trainer(TrainerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {
  try {
    impl_->guard([this] { impl_->open(); });
  } catch (...) {
    static_cast<void>(impl_.release());  // destructors would wait for peers that no longer answer
    throw;
  }
}
Trainer::~Trainer() = default;
std::string Trainer::describe_first_step() {
  std::string description;
  impl_->guard([&] { description = impl_->describe_first_step(); });
  return description;
}
void Trainer::run() {
  impl_->guard([this] { impl_->run(); });
}
int Trainer::rank() const { return impl_->rank(); }

}  // namespace sluice::train
