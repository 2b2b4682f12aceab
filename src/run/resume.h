// The state that a run resumes from: the newest snapshot in the ranks' memory, else the newest checkpoint
// that all ranks find whole, else nothing.
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
  // Collective: finds the state, and reports it to the user. Both arguments outlive it. Throws on every rank:
  // InputError if training would overwrite an earlier run that it does not continue, or if the checkpoint is
  // of another model; DamagedCheckpoint if none is whole.
  Resumed(const RunOptions& options, const AgreedConfig& agreed, survive::Control& control);

  bool from_snapshot() const { return from_snapshot_; }
  // The options' context, with the ranks that hold the slices whole as the origin's holders.
  const std::optional<survive::WorkerContext>& worker_context() const { return worker_context_; }
  checkpoint::Checkpoint* checkpoint() const { return checkpoint_.get(); }  // null: there is none
  void close_checkpoint();  // it keeps mapped the files that it read
  // The checkpoint's location, also after it is closed; empty without one, or with a snapshot.
  const std::optional<storage::Location>& directory() const { return directory_; }

  const RunState& state() const { return state_; }  // zero when the run begins
  // Collective: gives every rank the companions, since any rank may be rank 0 of a later membership.
  void share_companions(survive::Control& control);
  // The number of ranks that wrote the checkpoint, and their configuration. Empty for an imported model, or
  // if this program cannot read an older program's configuration.
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
