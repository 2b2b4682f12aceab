#include "train/run_context.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/failure.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/hugging_face.h"
#include "checkpoint/save.h"
#include "config/changes.h"
#include "config/run_planning.h"
#include "cost/snapshot_cost.h"
#include "link/layout.h"
#include "model/table_positions.h"
#include "ops/device.h"
#include "ops/tensor_memory.h"
#include "runtime/communicators.h"
#include "runtime/make_executor.h"
#include "strategy/text_cursor.h"
#include "train/calibration.h"
#include "train/corpus_tokenizer.h"
#include "train/precision.h"
#include "train/slice_snapshot.h"
#include "transport/device_transport.h"
#include "transport/gloo.h"

namespace sluice::train {

namespace fs = std::filesystem;
using base::text;

namespace {

base::Error describe(std::exception_ptr failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const base::Error& error) {
    return error;
  } catch (const std::exception& error) {
    return base::RunError(base::describe_failure(error));
  }
}

// Strategies as a checkpoint holds them: <1,1,1> is 1x<1,1,1> there.
std::vector<std::string> as_saved(std::vector<std::string> strategies) {
  for (std::string& written : strategies)
    written = to_text(strategy::parse_strategy(written, static_cast<int>(strategy::kMaxRanks)));
  return strategies;
}

}  // namespace

void RunContext::meet() {
  if (options_.launch.has_parent) {
    parent_watch_ = std::make_unique<transport::ParentWatch>([this](pid_t parent) {
      fail(
          base::RunError(text("the launcher (process ", parent, ") died: a rank does not go on without it")));
    });
  }
  const int64_t join_timeout_ns = config_.train.join_timeout_s * 1'000'000'000;
  transport::GlooOptions gloo;
  gloo.launch = options_.launch;
  gloo.join_timeout_ns = join_timeout_ns;
  transport_ = transport::gloo_transport(gloo);
  control_ = std::make_unique<Control>(*transport_);
  const auto meeting = activity().shared("meeting them");
  watch_progress();
  transport::HeartbeatOptions heartbeat;
  heartbeat.key = options_.launch.key();
  heartbeat.address = transport::own_address(gloo);
  heartbeat.join_timeout_ns = join_timeout_ns;
  heartbeat.at_work = [this] { return at_own_work(activity(), nodes_); };
  heartbeat.on_lost = [this](const transport::Loss& loss) { end_for(loss); };
  auto beating = std::make_unique<transport::Heartbeat>(control_->communicator(), std::move(heartbeat));
  {
    const std::lock_guard lock(failing_);
    heartbeat_ = std::move(beating);
  }
  if (rank() == 0 && !options_.launch.single_host() && options_.launch.secret.empty()) {
    base::log_warning(
        "SLUICE_SECRET is not set: whoever reaches this network can pass for a rank "
        "(docs/operating.md)");
  }
}

void RunContext::watch_progress() {
  if (config_.train.stall_s == 0) return;
  WatchdogOptions options;
  options.stall_ns = config_.train.stall_s * 1'000'000'000;
  options.others_at_own_work = [this] {
    const std::lock_guard lock(failing_);
    return heartbeat_ && heartbeat_->others_at_work();
  };
  options.effort = [this] { return effort(); };
  options.on_stall = [this](const std::string& stalled) {
    const base::RunError stall(
        text("no progress on rank ", rank(), ": ", stalled, " (train.stall_s says how long that may be)"));
    if (!options_.seat) return fail(stall);
    base::log_warning(stall.what());
    release_directory();
    options_.end_process(EpochOver(stall.what()));
  };
  watchdog_ = std::make_unique<Watchdog>(activity(), nodes_, std::move(options));
}

// What the process does beside holding its lock.
Effort RunContext::effort() {
  Effort effort = process_effort();
  const std::lock_guard lock(failing_);
  if (lock_) effort.transfers -= lock_->transfers();
  return effort;
}

// Before anything in it is read or written.
void RunContext::lock_directory() {
  if (options_.dry_run) return;
  control_->together("taking the run directory", [&] {
    if (rank() != 0) return;
    RunLockOptions lock;
    lock.command = options_.command;
    if (options_.seat) lock.run = options_.seat->run;
    lock.say = &base::log_info;
    lock.on_look = [this] { activity().advance(); };
    lock.on_lost = [this](const base::Error& error) { fail(error); };
    auto taken = std::make_unique<RunLock>(config_.log.dir, std::move(lock));
    const std::lock_guard guard(failing_);
    lock_ = std::move(taken);
  });
}

void RunContext::release_directory() {
  const std::lock_guard guard(failing_);
  if (lock_) lock_->release();
}

void RunContext::require_directory() const {
  if (lock_) lock_->require_held();
}

void RunContext::open_machine() {
  meet();
  const auto starting = activity().own("starting");
  read_configuration();
  compare_configurations();
  open_device();
}

void RunContext::read_configuration() {
  control_->together("reading the configuration", [&] {
    if (options_.failure) std::rethrow_exception(options_.failure);
    config::resolve_model(config_);
    drop_strategies_of_more_ranks();
    table_ = model::parameter_table(*config_.model.shape);
    config::configured_strategies(config_, options_.launch.world_size);
  });
}

// An epoch may have fewer ranks than the run was configured for.
void RunContext::drop_strategies_of_more_ranks() {
  std::vector<std::string>& strategies = config_.parallel.strategies;
  if (epoch() == 0 || strategies.empty()) return;
  try {
    config::configured_strategies(config_, options_.launch.world_size);
  } catch (const base::InputError& error) {
    if (rank() == 0)
      base::log_warning(text("parallel.strategies do not fit: ", error.what(), "; others are proposed"));
    strategies.clear();
    config_.parallel.select = "best";
  }
}

void RunContext::open() {
  meet();
  const auto starting = activity().own("starting");
  read_configuration();
  compare_configurations();
  open_corpora();
  lock_directory();
  open_checkpoint();
  open_device();
  open_planner();
  open_parameters();
  open_buddies();
}

// Each rank reads its own copy of what may be different files: a node's own disk.
void RunContext::open_corpora() {
  control_->together("opening the corpora", [&] {
    data_ = config::open_data(config_);
    for (const config::DataPhase& phase : data_->phases)
      corpora_.push_back(corpus::identities(phase.training));
  });
  base::CanonicalBytes all;
  for (const auto& corpora : corpora_) all.add(corpus::to_json(corpora).dump());
  const auto own = static_cast<int64_t>(all.hash());
  const auto words = control_->gather({&own, 1});
  control_->together("comparing corpora", [&] {
    for (size_t other = 1; other < words.size(); ++other) {
      if (words[other] == words[0]) continue;
      throw base::InputError(text("the corpora of rank ", other, " have other tokens than those of rank 0: ",
                                  "copy the same files to all machines"));
    }
  });
}

// Everything that decides the numbers must be the same on all ranks: a different learning rate would train
// each owner slice differently, a different eval_every would pair up different collectives.
void RunContext::compare_configurations() {
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

// The newest checkpoint that all ranks find whole, each looking at what it will own.
void RunContext::open_checkpoint() {
  from_snapshot_ = goes_on_from_snapshot();
  if (from_snapshot_) return take_snapshot();
  const std::vector<storage::Location> directories = find_checkpoints();
  for (const storage::Location& directory : directories) {
    const std::exception_ptr damage = open_if_whole(directory);
    const int64_t own_word = damage ? 1 : 0;
    int finder = 0;
    for (const auto& word : control_->gather({&own_word, 1})) {
      if (word[0] != 0) break;
      ++finder;
    }
    if (finder == control_->world_size()) return take_checkpoint();
    if (&directory == &directories.back()) {
      control_->together("opening the checkpoint", [&] {
        if (damage) std::rethrow_exception(damage);
      });
    }
    if (rank() == finder) base::log_warning(passed_over(directory, describe(damage).what()));
  }
}

// Whether the ranks hold a snapshot that is whole, and no checkpoint is newer: one may be saved between two
// snapshots.
bool RunContext::goes_on_from_snapshot() {
  if (!options_.seat || options_.seat->epoch.origin.step == membership::Origin::kNoSnapshot) return false;
  int64_t saved = 0;
  control_->together("looking for a newer checkpoint", [&] {
    if (rank() == 0)
      saved = checkpoint::latest(checkpoint_roots().front()).value_or(checkpoint::SavedStep{}).step;
  });
  if (control_->gather({&saved, 1})[0][0] > options_.seat->epoch.origin.step) return false;
  const auto intact = intact_origin(*options_.seat, *control_);
  if (intact) options_.seat->epoch.origin = *intact;
  if (!intact && rank() == 0)
    base::log_warning(
        "some slices have changed in all memories that hold them: the newest checkpoint is taken");
  return intact.has_value();
}

// The run's state as the holder of the first slices has it.
void RunContext::take_snapshot() {
  const membership::Origin& origin = options_.seat->epoch.origin;
  const int teller = origin.holders.front();
  const std::string state = control_->broadcast(rank() == teller ? held_state(*options_.seat) : "", teller);
  control_->together("taking up the snapshot", [&] {
    resumed_ = run_state_from_text(state);
    take_proposal(static_cast<int>(origin.holders.size()));
  });
}

// Rank 0 decides which there are: on a shared file system others may see an older directory.
std::vector<storage::Location> RunContext::find_checkpoints() {
  std::vector<std::string> names;
  control_->together("looking for a checkpoint", [&] {
    if (rank() != 0) return;
    // A run that lost its snapshots goes back to what it saved itself, if it did.
    std::vector<storage::Location> found;
    if (epoch() > 0 || options_.resume == "auto") found = all_checkpoints(checkpoint_roots());
    if (found.empty() && !options_.resume.empty() && options_.resume != "auto")
      found = train::find_checkpoints(locate(options_.resume));
    if (!options_.dry_run) require_own_run(found);
    for (const storage::Location& directory : found) names.push_back(directory.string());
    const bool from_folder = found.empty() && !config_.model.hf.empty();
    if (from_folder) resumed_.companions = checkpoint::read_companions(config_.model.hf);
    if (found.empty()) add_corpus_tokenizer(config_.data, resumed_.companions);
  });
  const std::string all = control_->broadcast(base::join(names, std::string(1, '\0')));
  if (all.empty()) return {};
  std::vector<storage::Location> directories;
  for (const std::string& name : base::split(all, '\0')) directories.push_back(locate(name));
  return directories;
}

// Where this run saves, the mirror last.
std::vector<storage::Location> RunContext::checkpoint_roots() const {
  std::vector<storage::Location> roots{config_.log.dir / "checkpoints"};
  if (!config_.checkpoint.mirror.empty()) roots.push_back(locate(config_.checkpoint.mirror));
  return roots;
}

// InputError when training would write over an earlier run that it doesn't continue.
void RunContext::require_own_run(const std::vector<storage::Location>& found) const {
  const std::vector<storage::Location> roots = checkpoint_roots();
  if (roots.size() > 1 && same_place(roots.front(), roots.back())) {
    throw base::InputError(text("[checkpoint] mirror is ", roots.back().string(),
                                ", where this run's checkpoints are: name another directory"));
  }
  const bool continues = !found.empty() && std::ranges::any_of(roots, [&](const storage::Location& root) {
    return same_place(found.front().parent(), root);
  });
  for (const storage::Location& root : roots) {
    if (continues || !checkpoint::latest(root)) continue;
    const std::string way_out = &root == &roots.front() ? "log.dir" : "checkpoint.mirror";
    throw base::InputError(text(root.string(), " holds checkpoints of an earlier run",
                                found.empty() ? "" : text(", which ", found.front().string(), " is none of"),
                                ": continue it with --resume auto, or set another ", way_out));
  }
}

// Null, or on some ranks the damage that they found.
std::exception_ptr RunContext::open_if_whole(const storage::Location& directory) {
  std::exception_ptr damage;
  control_->together("opening the checkpoint", [&] {
    try {
      if (!(directory / "manifest.json").is_file()) {
        throw base::InputError(text(directory.string(), " is seen by rank 0 but not by rank ", rank(),
                                    ": put log.dir where all ranks see the same files"));
      }
      checkpoint_ = std::make_unique<checkpoint::Checkpoint>(directory);
      resumed_ = run_state(*checkpoint_);
      checkpoint_->require_model(*config_.model.shape, master_type(precision_of(config_.train.dtype)));
      std::vector<base::Interval> owned;
      for (const model::Bucket& bucket : table_.buckets) {
        owned.push_back(link::OwnerLayout{options_.launch.world_size}.owned(bucket, rank()));
      }
      checkpoint_->verify(table_, owned);
      if (rank() == 0) {
        resumed_.companions = checkpoint_->companions();
        add_corpus_tokenizer(config_.data, resumed_.companions);
      }
    } catch (const checkpoint::DamagedCheckpoint&) {
      damage = std::current_exception();
    }
  });
  return damage;
}

void RunContext::take_checkpoint() {
  tell_of_checkpoint();
  control_->together("taking up the checkpoint", [&] {
    const int64_t last_step = std::max<int64_t>(0, resumed_.step - 1);
    if (!resumed_.corpora.empty()) {
      corpus::require_same(resumed_.corpora, corpora_at(last_step), data_->at(last_step).training,
                           checkpoint_->directory().string());
    }
    take_proposal(checkpoint_->manifest().world_size);
  });
}

void RunContext::tell_of_checkpoint() const {
  if (rank() != 0) return;
  const std::string name = checkpoint_->directory().string();
  base::log_info(text("resuming from ", name, " after ", base::human_count(resumed_.step, "step", "steps")));
  if (!resumed_.sampler && resumed_.step > 0) {
    base::log_info(text(name,
                        " does not say which documents it has seen: the data go on as behind the first ",
                        base::human_count(resumed_.step, "step", "steps"), " of this configuration"));
  }
  tell_of_changes(name);
  if (checkpoint_->manifest().hashed) return;
  base::log_warning(text(name,
                         " is of an older program: its manifest has no hash, so that damage to figures ",
                         "in it may go unnoticed, and its corpora are known by their lengths alone; new ",
                         "checkpoints have both"));
}

void RunContext::tell_of_changes(const std::string& checkpoint) const {
  if (resumed_.config.empty()) return;  // an imported model
  try {
    config::RunConfig then = config::parse_config(resumed_.config, checkpoint);
    then.model = config_.model;    // it fits: its shape was compared, and a folder may have moved
    if (then.parallel.proposed) {  // what "auto" came to
      then.parallel.strategies.clear();
      then.parallel.proposed = false;
    }
    config::RunConfig now = config_;
    now.parallel.strategies = as_saved(now.parallel.strategies);
    for (const std::string& line : config::changes(then, now)) {
      base::log_info(text("since then changed: ", line));
    }
  } catch (const base::InputError& error) {
    base::log_warning(text(
        "what changed since then cannot be said, and what \"auto\" came to is asked anew: ", error.what()));
  }
}

namespace {

// As the earlier run resolved it. Nothing of an older program's that this one cannot read (tell_of_changes).
std::optional<config::ParallelConfig> earlier_parallel(const RunState& resumed) {
  if (resumed.config.empty()) return std::nullopt;
  try {
    return config::parse_config(resumed.config, "the checkpoint").parallel;
  } catch (const base::InputError&) {
    return std::nullopt;
  }
}

}  // namespace

// A proposal depends on free memory and the moment; a run that continues on as many ranks, and asks for the
// same, keeps its own.
void RunContext::take_proposal(int world_size) {
  const bool same_ranks = world_size == options_.launch.world_size;
  config::ParallelConfig& own = config_.parallel;
  if (!own.strategies.empty() || !same_ranks) return;
  const std::optional<config::ParallelConfig> earlier = earlier_parallel(resumed_);
  if (!earlier || !earlier->proposed || earlier->method != own.method || earlier->max_cp != own.max_cp ||
      earlier->share != own.share || earlier->exchange != own.exchange)
    return;
  own.strategies = earlier->strategies;
  own.proposed = true;
}

// This rank's device, and one figure for the memory that any rank may use: plans depend on it. A run that
// continues keeps the figure it began with, unless the configuration names one.
void RunContext::open_device() {
  control_->together("choosing the device", [&] {
    device_ = profile::rank_device(config_.train, config_.memory, options_.launch);
    if (device_.device.is_cpu()) ops::count_host_tensors();
    if (config_.train.deterministic) ops::make_deterministic();
    ops::prepare_device(device_.device);
    untracked_bytes_ = ops::untracked_device_bytes(device_.device);
    set_aside_snapshots();
  });
  at::set_num_threads(device_.threads);  // for all threads: another one's number would reach this one
  for (const auto& words : control_->gather(std::span<const int64_t>(&device_.memory_bytes, 1))) {
    device_.memory_bytes = std::min(device_.memory_bytes, words[0]);
  }
  for (const auto& words : control_->gather(std::span<const int64_t>(&device_.host_bytes, 1))) {
    device_.host_bytes = std::min(device_.host_bytes, words[0]);
  }
  keeps_memory_ = config_.memory.device_gib > 0;
  if (const auto earlier = earlier_calibration(resumed_.calibration)) {
    const cost::MemoryModel& memory = earlier->options.memory;
    if (!keeps_memory_) device_.memory_bytes = memory.device_bytes;
    keeps_memory_ = true;
    if (config_.memory.host_gib == 0 && memory.host_bytes > 0) device_.host_bytes = memory.host_bytes;
  }
  if (device_.device.is_cpu()) return;
  transport::DeviceTransportOptions options;
  options.device = device_.device.index();
  options.most_blocks = runtime::most_blocks();
  const auto connecting = activity().shared("connecting the devices");
  device_transport_ = transport::device_transport(*transport_, options);
}

// A save behind training copies the owner slices to host memory, and so do snapshots for later epochs; the
// memory that was asked of the machine has to hold them, too.
void RunContext::set_aside_snapshots() {
  const int64_t copies = (config_.checkpoint.every > 0 && config_.checkpoint.async ? 1 : 0) +
                         (options_.seat ? cost::kSnapshotCopies : 0);
  if (copies == 0) return;
  const int64_t bytes = copies * SliceSnapshot::bytes(table_, precision_of(config_.train.dtype),
                                                      options_.launch.world_size, rank());
  if (config_.memory.host_gib == 0) device_.host_bytes = std::max<int64_t>(1, device_.host_bytes - bytes);
  if (!device_.device.is_cpu() || config_.memory.device_gib > 0) return;
  if (device_.memory_bytes <= bytes) {
    throw base::InfeasibleError(
        text("a rank may use ", base::human_bytes(static_cast<double>(device_.memory_bytes)),
             ", which snapshots of parameters would take: set ",
             "checkpoint.async = false or elastic.enabled = false, or use more ranks"));
  }
  device_.memory_bytes -= bytes;
}

void RunContext::open_planner() {
  cost::Calibration calibration = calibrate({config_, resumed_.calibration, precision_of(config_.train.dtype),
                                             device_.device, device_.memory_bytes},
                                            device_transport(), *control_);
  calibration.options.memory.device_bytes -= bytes_taken_since_opening();
  calibration.options.memory.host_bytes = device_.host_bytes;
  calibration.options.memory.reduce_bytes = config::reduce_bytes(config_.train);
  calibration_ = cost::to_json(calibration, {}, options_.launch.world_size);
  control_->together("planning", [&] {
    planner_ = config::make_planner(
        config::task_of(config_, *data_, cost::CostModel(calibration.options), options_.launch.world_size));
    table_.program = planner_->cost().program();
    config::require_context(*planner_, data_->longest_sequence());
    config_.parallel.proposed = config_.parallel.proposed || config_.parallel.strategies.empty();
    config_.parallel.strategies.clear();  // "auto" is resolved from here on
    for (const strategy::Strategy& candidate : planner_->options().candidates) {
      config_.parallel.strategies.push_back(strategy::to_text(candidate));
    }
  });
}

// Measuring used libraries and communicators as training will: what they took of a GPU beside tensors, on the
// rank where it is most, is not there for plans. The figure that a run continues with is without it already.
int64_t RunContext::bytes_taken_since_opening() {
  if (device_.device.is_cpu() || keeps_memory_) return 0;
  int64_t taken = ops::untracked_device_bytes(device_.device) - untracked_bytes_;
  for (const auto& words : control_->gather(std::span<const int64_t>(&taken, 1)))
    taken = std::max(taken, words[0]);
  return std::max<int64_t>(0, taken);
}

std::unique_ptr<runtime::Executor> RunContext::make_executor() {
  runtime::HostExecutor::Options executor;
  executor.on_failure = [this](std::exception_ptr failure) { end_process(failure); };
  executor.watch = &nodes_;
  return runtime::make_executor(device_.device, std::move(executor));
}

void RunContext::open_parameters() {
  runtime::Engine::Options engine;
  engine.precision = precision_of(config_.train.dtype);
  if (config_.train.reduce_dtype == "bfloat16") engine.precision.reduce = comm::DType::kBFloat16;
  engine.context_length = model::table_positions(*config_.model.shape, config::longest_context(config_),
                                                 data_->longest_sequence());
  engine.device = device_.device;
  engine.host_transport = transport_.get();
  {
    const auto connecting = activity().shared("making the communicators");
    engine_ = std::make_unique<runtime::Engine>(table_, planner_->options().candidates, device_transport(),
                                                make_executor(), engine);
  }
  std::vector<std::vector<std::string>> groups;
  for (const config::GroupConfig& group : config_.optimizer.groups) groups.push_back(group.parameters);
  engine_->store().set_learning(model::learning_runs(table_, groups));
  if (from_snapshot_) {
    const auto restoring = activity().shared("taking up the snapshots");
    return restore(*options_.seat, control_->communicator(), engine_->store());
  }
  control_->together("loading the parameters", [&] {
    // Adapters are in no model folder, and in checkpoints only once they were trained.
    const int64_t seed = config_.model.seed.value_or(config_.data.seed);
    const bool whole = checkpoint_ || has_weights();
    if (!whole || table_.shape.lora.rank > 0)
      runtime::initialize(engine_->store(), static_cast<uint64_t>(seed));
    if (checkpoint_) {
      load_parameters(*checkpoint_, engine_->store());
    } else if (whole) {
      load_weights();
    }
  });
  checkpoint_.reset();  // it keeps the files it read mapped
}

// Every rank keeps the companions: any may be rank 0 of a later epoch.
void RunContext::open_buddies() {
  if (!options_.seat || options_.dry_run) return;
  resumed_.companions = run_state_from_text(control_->broadcast(to_text(resumed_))).companions;
  const transport::Launch& launch = options_.launch;
  std::vector<int> ranks(static_cast<size_t>(launch.world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  Buddies::Options options{.seat = *options_.seat, .every = config_.elastic.buddy_every};
  if (!launch.single_host()) options.stride = launch.local_size;
  const auto connecting = activity().shared("making the communicators");
  buddies_ = std::make_unique<Buddies>(transport_->communicator("buddies", ranks), engine_->store(), options);
}

bool RunContext::has_weights() const {
  return !config_.model.hf.empty() && checkpoint::has_hugging_face_weights(config_.model.hf);
}

void RunContext::load_weights() {
  const checkpoint::HuggingFaceModel weights(config_.model.hf);
  runtime::load_masters(engine_->store(), [&](int bucket, base::Interval interval, float* values) {
    weights.read(table_.buckets[static_cast<size_t>(bucket)], interval, values);
  });
}

// A node failed. An operation with a lost peer may fail before the news of the loss is here: then the peer is
// to blame, and otherwise the others must learn that this rank is.
void RunContext::end_process(std::exception_ptr failure) {
  constexpr int64_t kNewsNs = 2'000'000'000;
  const base::Error error = describe(failure);
  const int64_t news_ns = options_.launch.world_size > 1 ? kNewsNs : 0;
  if (const auto loss = heartbeat_->wait_for_loss(news_ns)) end_for(*loss);
  fail(error);
}

// All ranks may have the same to report, as when they are all told to stop: the first is heard.
void RunContext::fail(const base::Error& error) {
  transport::Heartbeat* heartbeat = nullptr;
  {
    const std::lock_guard lock(failing_);
    heartbeat = heartbeat_.get();
  }
  if (heartbeat != nullptr) {
    if (const auto loss = heartbeat->lost()) end_for(*loss);
    heartbeat->report_failure(error.what(), error.exit_status());
  }
  release_directory();
  options_.end_process(error);
}

// Whose loss nobody told of himself is done without, where there is a supervisor.
void RunContext::end_for(const transport::Loss& loss) {
  release_directory();
  if (loss.reported) options_.end_process(QuietError(loss.text, loss.exit_status));
  if (options_.seat) options_.end_process(EpochOver(loss.text));
  options_.end_process(base::RunError(loss.text));
  SLUICE_ASSERT(false, "end_process returned");
}

// The failure that is being handled came before the ranks knew of each other. In an epoch that only means
// that one of them is gone; and who failed before has that to say.
void RunContext::throw_not_met() const {
  if (options_.failure) std::rethrow_exception(options_.failure);
  if (!options_.seat) throw;
  throw EpochOver(describe(std::current_exception()).what());
}

void RunContext::end_epoch(const std::string& why) {
  leave();
  release_directory();
  options_.end_process(EpochOver(why));
  SLUICE_ASSERT(false, "end_process returned");
}

config::PhasedSampler RunContext::sampler() const {
  config::PhasedSampler sampler = data_->sampler();
  if (resumed_.sampler) {
    sampler.restore(*resumed_.sampler);
  } else {
    sampler.skip(resumed_.step);
  }
  return sampler;
}

void RunContext::leave() {
  const auto leaving = activity().own("leaving");
  control_->barrier();
  heartbeat_->goodbye();
}

}  // namespace sluice::train
