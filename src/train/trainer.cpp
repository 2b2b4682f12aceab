#include "train/trainer.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/hugging_face.h"
#include "report/plan_table.h"
#include "report/step_metrics.h"
#include "runtime/engine.h"
#include "train/calibration.h"
#include "train/candidates.h"
#include "train/checkpoints.h"
#include "train/control.h"
#include "train/data.h"
#include "train/learning_rate.h"
#include "train/plan_ahead.h"
#include "train/resources.h"
#include "train/step_trace.h"
#include "train/stop_signal.h"
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

// The one message for a failure, and its exit status.
std::pair<std::string, int> describe(std::exception_ptr failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const base::Error& error) {
    return {error.what(), error.exit_status()};
  } catch (const std::exception& error) {
    return {error.what(), 1};
  }
}

// What ranks tell each other between two steps, in words.
struct StepWord {
  int64_t next_step = 0;
  int64_t agreement = 0;
  int64_t stop = 0;
  int64_t pulled_bytes = 0;
  int64_t pushed_bytes = 0;
  int64_t peak_bytes = 0;
  int64_t link_exposed_ns = 0;
  int64_t overhead_ns = 0;
};

}  // namespace

class Trainer::Impl {
 public:
  explicit Impl(TrainerOptions options);

  int rank() const { return options_.launch.rank; }
  std::string describe_first_step();
  void run();

 private:
  void open_run_directory();
  void open_parameters();
  void load_initial_weights();
  std::unique_ptr<runtime::Executor> make_executor();
  void end_process(std::exception_ptr failure);

  PlanningInputs planning(const corpus::Blend& blend) const {
    return {blend, *planner_, table_, options_.launch.world_size, rank(), link_plans_.get()};
  }
  corpus::Sampler sampler() const;
  runtime::AdamW optimizer(int64_t step) const;
  runtime::StepResult run_step(const PreparedStep& step);
  bool agree(const PreparedStep* upcoming, const runtime::StepResult& result, report::StepMetrics& metrics);
  void evaluate(int64_t step);
  void save(const PreparedStep& last);
  void report(const report::StepMetrics& metrics);

  TrainerOptions options_;
  config::RunConfig& config_ = options_.config;
  StopSignal stop_signal_;
  std::unique_ptr<comm::Transport> transport_;
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

Trainer::Impl::Impl(TrainerOptions options) : options_(std::move(options)) {
  transport::GlooOptions gloo;
  gloo.launch = options_.launch;
  transport_ = transport::gloo_transport(gloo);
  control_ = std::make_unique<Control>(*transport_);
  transport::HeartbeatOptions heartbeat;
  heartbeat.address = transport::own_address(gloo);
  heartbeat.on_lost = [this](const transport::Loss& loss) { options_.end_process(loss.text, 1); };
  heartbeat_ = std::make_unique<transport::Heartbeat>(control_->communicator(), std::move(heartbeat));

  at::set_num_threads(compute_threads(config_.train.threads, options_.launch.local_size));
  control_->together("reading the configuration", [&] {
    config::resolve_model(config_);
    table_ = model::parameter_table(*config_.model.shape);
    configured_strategies(config_, options_.launch.world_size);
    data_ = open_data(config_);
  });
  control_->together("opening the run directory", [&] { open_run_directory(); });
  control_->together("opening the checkpoint", [&] {
    const auto found = find_checkpoint(options_.resume, config_.log.dir / "checkpoints");
    if (!found) return;
    checkpoint_ = std::make_unique<checkpoint::Checkpoint>(*found);
    resumed_ = run_state(*checkpoint_);
  });
  calibration_ =
      calibrate({config_, resumed_.calibration, tensor_parallel_degrees(config_, options_.launch.world_size),
                 usable_memory_bytes(config_.memory, options_.launch.local_size)},
                *transport_, *control_);
  calibration_json_ = cost::to_json(calibration_, {}, options_.launch.world_size);
  control_->together("planning", [&] {
    planner_ =
        make_planner(config_, *data_, cost::CostModel(calibration_.options), options_.launch.world_size);
  });
  open_parameters();
}

void Trainer::Impl::open_run_directory() {
  if (rank() == 0) {
    base::make_directories(config_.log.dir);
    base::write_file_atomically(config_.log.dir / "config.toml", config::to_toml(config_));
  }
  // Other ranks meet the directory through the barrier that `together` is.
}

std::unique_ptr<runtime::Executor> Trainer::Impl::make_executor() {
  runtime::HostExecutor::Options executor;
  executor.on_thread_start = [] { at::set_num_threads(1); };
  executor.on_failure = [this](std::exception_ptr failure) { end_process(failure); };
  return std::make_unique<runtime::HostExecutor>(std::move(executor));
}

void Trainer::Impl::open_parameters() {
  runtime::Engine::Options engine;
  engine.precision = precision_of(config_.train.dtype);
  engine.context_length = config_.data.context_length;
  engine_ = std::make_unique<runtime::Engine>(table_, planner_->options().candidates, *transport_,
                                              make_executor(), engine);
  control_->together("loading the parameters", [&] {
    if (checkpoint_) {
      load_parameters(*checkpoint_, engine_->store());
    } else {
      load_initial_weights();
    }
  });
  if (rank() != 0) return;
  base::write_json(config_.log.dir / "calibration.json", calibration_json_);
  metrics_ = std::make_unique<report::MetricsWriter>(
      report::MetricsWriter::Options{config_.log.dir, config_.log.tensorboard, resumed_.step});
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
  const auto [message, exit_status] = describe(failure);
  if (const auto loss = heartbeat_->wait_for_loss(kNewsNs)) options_.end_process(loss->text, 1);
  heartbeat_->report_failure(message);
  options_.end_process(message, exit_status);
}

corpus::Sampler Trainer::Impl::sampler() const {
  corpus::Sampler sampler = data_->sampler();
  if (resumed_.sampler) sampler.restore(*resumed_.sampler);
  return sampler;
}

std::string Trainer::Impl::describe_first_step() {
  corpus::Sampler batches = sampler();
  const corpus::Batch batch = batches.next();
  const PreparedStep step =
      prepare_step(planning(data_->training), batch.step, batch.samples, graph::Purpose::kTrain);
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
  return adam;
}

runtime::StepResult Trainer::Impl::run_step(const PreparedStep& step) {
  return engine_->train(step.graph, step.tokens, optimizer(step.plan.step));
}

void Trainer::Impl::run() {
  PlanAhead ahead(planning(data_->training), sampler(), config_.train.steps);
  std::unique_ptr<PreparedStep> step = ahead.next();
  bool stop = false;
  {
    report::StepMetrics unused;
    stop = agree(step.get(), {}, unused);
  }
  while (step && !stop) {
    const auto begin = steady_clock::now();
    const runtime::StepResult result = run_step(*step);
    std::unique_ptr<PreparedStep> upcoming = ahead.next();
    report::StepMetrics metrics;
    stop = agree(upcoming.get(), result, metrics);
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
    const int64_t done = metrics.step + 1;
    const bool last = !upcoming || stop;
    if (config_.train.eval_every > 0 && (done % config_.train.eval_every == 0 || last))
      evaluate(metrics.step);
    const bool due = config_.checkpoint.every > 0 && (done % config_.checkpoint.every == 0 || last);
    if (due || stop) save(*step);
    step = std::move(upcoming);
  }
  control_->barrier();
  heartbeat_->goodbye();
  if (rank() == 0) base::log_info(summary_.text());
}

// Compares the plan of the upcoming step, shares this step's measurements and the wish to stop. True when any
// rank wants to stop.
bool Trainer::Impl::agree(const PreparedStep* upcoming, const runtime::StepResult& result,
                          report::StepMetrics& metrics) {
  StepWord own;
  own.next_step = upcoming != nullptr ? upcoming->plan.step : -1;
  own.agreement = upcoming != nullptr ? static_cast<int64_t>(upcoming->agreement) : 0;
  own.stop = stop_signal_.requested() ? 1 : 0;
  own.pulled_bytes = result.pulled_bytes;
  own.pushed_bytes = result.pushed_bytes;
  own.peak_bytes = result.peak_bytes;
  own.link_exposed_ns = result.timing.link_exposed_ns;
  own.overhead_ns = result.timing.overhead_ns();
  constexpr size_t kWords = sizeof(StepWord) / sizeof(int64_t);
  bool stop = false;
  const auto words = control_->gather({reinterpret_cast<const int64_t*>(&own), kWords});
  for (size_t other = 0; other < words.size(); ++other) {
    const StepWord& word = *reinterpret_cast<const StepWord*>(words[other].data());
    if (word.next_step != own.next_step || word.agreement != own.agreement) {
      throw base::RunError(text("rank ", rank(), " planned step ", own.next_step, " otherwise than rank ",
                                other, " (step ", word.next_step,
                                "): all ranks need the same program, configuration and corpora"));
    }
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
    const PreparedStep prepared = prepare_step(planning(data_->validation->blend), batch.step, batch.samples,
                                               graph::Purpose::kEvaluate);
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
  const int64_t left_ns = elapsed_ns(begin_) / done * (config_.train.steps - metrics.step - 1);
  char numbers[160];
  std::snprintf(numbers, sizeof numbers,
                "step %lld/%lld  loss %.4f  norm %.3f  %7.1f ms (predicted %.1f)  %.0f tokens/s",
                static_cast<long long>(metrics.step + 1), static_cast<long long>(config_.train.steps),
                metrics.loss, metrics.grad_norm, metrics.time_ms, metrics.predicted_ms, metrics.tokens_per_s);
  base::log_info(text(numbers, "  ", metrics.strategy, "  eta ", base::human_duration(left_ns)));
}

Trainer::Trainer(TrainerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Trainer::~Trainer() = default;
std::string Trainer::describe_first_step() { return impl_->describe_first_step(); }
void Trainer::run() { impl_->run(); }
int Trainer::rank() const { return impl_->rank(); }

}  // namespace sluice::train
