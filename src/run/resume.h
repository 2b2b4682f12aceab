// What a run goes on from: the newest step that its ranks hold in memory, else the newest checkpoint that all
// of them find whole, else nothing.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "checkpoint/load.h"
#include "config/run_config.h"
#include "run/agreed_config.h"
#include "run/checkpoints.h"
#include "run/run_options.h"
#include "survive/control.h"

namespace sluice::run {

class Resumed {
 public:
  // Collective: looks for it, and tells the user. Both outlive it. Throws on every rank: InputError when
  // training would write over an earlier run that it does not continue, or when the checkpoint is of another
  // model; DamagedCheckpoint when none is whole.
  Resumed(const RunOptions& options, const AgreedConfig& agreed, survive::Control& control);

  bool from_snapshot() const { return from_snapshot_; }
  // The options', whose origin then is of those that hold the slices whole.
  const std::optional<survive::WorkerContext>& worker_context() const { return worker_context_; }
  checkpoint::Checkpoint* checkpoint() const { return checkpoint_.get(); }  // null: there is none
  void close_checkpoint();  // it keeps the files it read mapped
  // The checkpoint's, once it is closed; none: there is none.
  const std::optional<storage::Location>& directory() const { return directory_; }

  const RunState& state() const { return state_; }  // zero when the run begins
  // Collective: every rank has the companions then, for any may be rank 0 of a later epoch.
  void share_companions(survive::Control& control);
  // How many ranks wrote it, and under which configuration: none of an imported model's, or of an older
  // program's that this one cannot read.
  int ranks() const { return ranks_; }
  const std::optional<config::RunConfig>& config() const { return config_; }

 private:
  bool find_snapshot(survive::Control& control);
  void find_checkpoint(survive::Control& control);
  std::vector<storage::Location> candidates(survive::Control& control);
  std::vector<storage::Location> roots() const;
  void require_own_run(const std::vector<storage::Location>& found) const;
  std::exception_ptr open_if_whole(const storage::Location& directory, survive::Control& control);
  void read_configuration(const std::string& name);
  void tell() const;
  void tell_of_changes() const;
  int rank() const { return options_.launch.rank; }

  const config::RunConfig& asked() const { return agreed_.config; }

  const RunOptions& options_;
  const AgreedConfig& agreed_;
  std::optional<survive::WorkerContext> worker_context_;
  bool from_snapshot_ = false;
  std::unique_ptr<checkpoint::Checkpoint> checkpoint_;
  std::optional<storage::Location> directory_;
  RunState state_;
  int ranks_ = 0;
  std::optional<config::RunConfig> config_;
};

}  // namespace sluice::run
