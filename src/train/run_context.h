// What a rank's training loop stands on, set up with all other ranks: transports, heartbeat, device, corpora,
// calibration, planner, parameters.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/json.h"
#include "config/data.h"
#include "cost/calibration.h"
#include "profile/device.h"
#include "runtime/engine.h"
#include "train/buddies.h"
#include "train/checkpoints.h"
#include "train/control.h"
#include "train/plan_ahead.h"
#include "train/run_lock.h"
#include "train/trainer.h"
#include "train/watchdog.h"
#include "transport/heartbeat.h"
#include "transport/parent_watch.h"

namespace sluice::train {

class RunContext {
 public:
  explicit RunContext(TrainerOptions options) : options_(std::move(options)) {}

  // Collective over all ranks of the launch. Throws on every rank when any rank fails (Control::together).
  // Nothing below may be called before.
  void open();

  // Collective, in place of open(): transports and devices alone, for who only measures.
  void open_machine();

  // Runs `action`; lets the other ranks know if it fails. Around open() and all that follows.
  template <typename Action>
  void guard(Action action);

  // Collective, behind a step whose snapshot is sealed: ends this process, for the next epoch's.
  [[noreturn]] void end_epoch(const std::string& why);

  // Collective. Nobody goes before all are done: who ends without a word is taken for lost.
  void leave();

  // After leave(), or instead of it by who fails: the next run may have the run directory. Any thread.
  void release_directory();

  // RunError, on rank 0, when another run has taken the run directory for a dead one's. Any thread.
  void require_directory() const;

  // Something from outside of the ranks' work ends this one, and so all, at once. Any thread.
  void fail(const base::Error& error);

  int rank() const { return options_.launch.rank; }
  transport::Launcher launcher() const { return options_.launch.launcher; }
  const config::RunConfig& config() const { return options_.config; }  // with "auto" resolved
  // What `text` of the configuration or the command line names.
  storage::Location locate(const std::string& text) const { return options_.locate(text); }
  const RunState& resumed() const { return resumed_; }  // zero without a checkpoint
  const std::optional<Seat>& seat() const { return options_.seat; }
  int64_t epoch() const { return options_.seat ? options_.seat->epoch.number : 0; }
  Buddies* buddies() { return buddies_.get(); }  // null: the run is not elastic
  const base::Json& calibration() const { return calibration_; }
  const config::Data& data() const { return *data_; }
  // Those trained on in a step.
  const std::vector<corpus::CorpusIdentity>& corpora_at(int64_t step) const {
    return corpora_[data_->index_at(step)];
  }
  Control& control() { return *control_; }
  Activity& activity() { return control_->activity(); }
  const profile::RankDevice& device() const { return device_; }
  comm::Transport& device_transport() { return device_transport_ ? *device_transport_ : *transport_; }
  const cost::CostModel& cost() const { return planner_->cost(); }
  runtime::Engine& engine() { return *engine_; }
  config::PhasedSampler sampler() const;  // as the checkpoint left it
  StepInputs planning() const {
    return {*planner_, table_, options_.launch.world_size, rank(), link_plans_.get()};
  }

 private:
  void meet();
  [[noreturn]] void throw_not_met() const;
  [[noreturn]] void end_for(const transport::Loss& loss);
  void watch_progress();
  void lock_directory();
  void read_configuration();
  void open_corpora();
  void compare_configurations();
  void open_checkpoint();
  std::vector<storage::Location> find_checkpoints();
  std::vector<storage::Location> checkpoint_roots() const;
  void require_own_run(const std::vector<storage::Location>& found) const;
  std::exception_ptr open_if_whole(const storage::Location& directory);
  void take_checkpoint();
  bool goes_on_from_snapshot();
  void take_snapshot();
  void drop_strategies_of_more_ranks();
  void tell_of_checkpoint() const;
  void tell_of_changes(const std::string& checkpoint) const;
  void take_proposal(int world_size);
  void open_device();
  void set_aside_snapshots();
  void open_planner();
  int64_t bytes_taken_since_opening();
  void open_parameters();
  void open_buddies();
  bool has_weights() const;  // besides a config.json
  void load_weights();
  std::unique_ptr<runtime::Executor> make_executor();
  Effort effort();
  void end_process(std::exception_ptr failure);

  TrainerOptions options_;
  config::RunConfig& config_ = options_.config;
  std::unique_ptr<comm::Transport> transport_;         // between hosts
  std::unique_ptr<comm::Transport> device_transport_;  // between GPUs; null on the CPU
  profile::RankDevice device_;
  int64_t untracked_bytes_ = 0;  // of the GPU, when its free memory was read
  bool keeps_memory_ = false;    // plans may use what is configured, or what the continued run began with
  std::unique_ptr<Control> control_;
  std::mutex failing_;  // guards when heartbeat_ and lock_ come to be: other threads may fail before
  std::unique_ptr<transport::Heartbeat> heartbeat_;
  std::unique_ptr<transport::ParentWatch> parent_watch_;
  std::unique_ptr<RunLock> lock_;  // rank 0
  runtime::NodeWatch nodes_;
  std::optional<config::Data> data_;
  std::vector<std::vector<corpus::CorpusIdentity>> corpora_;  // of each phase of data_, for training
  model::ParameterTable table_;
  std::unique_ptr<checkpoint::Checkpoint> checkpoint_;
  bool from_snapshot_ = false;  // the run goes on from what the ranks hold in memory
  RunState resumed_;
  base::Json calibration_;
  std::optional<plan::Planner> planner_;
  std::unique_ptr<graph::LinkPlans> link_plans_ = std::make_unique<graph::LinkPlans>();
  std::unique_ptr<runtime::Engine> engine_;
  std::unique_ptr<Buddies> buddies_;
  std::unique_ptr<Watchdog> watchdog_;
};

template <typename Action>
void RunContext::guard(Action action) {
  try {
    action();
  } catch (...) {
    if (!heartbeat_) throw_not_met();
    if (!control_->failure_agreed()) end_process(std::current_exception());
    release_directory();
    heartbeat_->goodbye();
    throw;
  }
}

}  // namespace sluice::train
