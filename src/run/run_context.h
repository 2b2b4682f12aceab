// The foundation of a rank's training loop: the agreed configuration, device, data, resumed state, planning
// and parameters. Each is made from the ones before it, together with all other ranks.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "run/agreed_config.h"
#include "run/first_parameters.h"
#include "run/peers.h"
#include "run/planning.h"
#include "run/rollout_strategy.h"
#include "run/run_device.h"
#include "run/run_options.h"
#include "run/run_start.h"
#include "run/snapshot_replicas.h"
#include "runtime/engine.h"

namespace sluice::run {

// Made step by step: earlier objects must survive if a later one fails, else they would wait for lost peers.
class RunContext {
 public:
  explicit RunContext(RunOptions options) : options_(std::move(options)) {}

  // Collective over all ranks of the launch. Throws on every rank if any rank fails (Control::together). Only
  // options(), peers().guard() and peers().fail() may be called before.
  void open();

  // Collective, instead of open(), for callers that only measure: the agreed configuration and the device.
  void open_machine();

  const RunOptions& options() const { return options_; }
  int rank() const { return options_.launch.rank; }
  Peers& peers() { return peers_; }
  survive::Control& control() { return peers_.control(); }
  survive::Activity& activity() { return control().activity(); }
  const AgreedConfig& agreed() const { return *agreed_; }
  const RunStart& start() const { return *start_; }
  const RunDevice& device() const { return *device_; }
  comm::Transport& device_transport() { return device_->transport(); }
  Planning& planning() { return *planning_; }
  const Planning& planning() const { return *planning_; }
  const config::RunConfig& config() const { return planning_->config(); }  // with "auto" resolved
  RolloutStrategy& rollout_strategy() {
    return *rollout_strategy_;
  }  // REQUIRES: the run samples, or rolls out
  runtime::Engine& engine() { return *engine_; }
  Reference& reference() { return *reference_; }
  SnapshotReplicas* snapshot_replicas() { return replicas_.get(); }  // null: the run is not elastic

 private:
  void meet();
  void open_engine();
  void open_replicas();

  const RunOptions options_;
  Peers peers_{options_};
  std::optional<AgreedConfig> agreed_;
  std::optional<RunStart> start_;
  std::optional<RunDevice> device_;
  std::optional<Planning> planning_;
  std::optional<RolloutStrategy> rollout_strategy_;
  std::unique_ptr<runtime::Engine> engine_;
  std::optional<Reference> reference_;
  std::unique_ptr<SnapshotReplicas> replicas_;
};

}  // namespace sluice::run
