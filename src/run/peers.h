// The other ranks of a run: this rank meets them, is notified when one is lost, reports its own failure, and
// leaves them. The run directory is released however this rank ends.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <string>

#include "run/run_options.h"
#include "runtime/executor.h"
#include "runtime/node_watch.h"
#include "survive/control.h"
#include "survive/run_lock.h"
#include "survive/watchdog.h"
#include "transport/heartbeat.h"
#include "transport/parent_watch.h"

namespace sluice::run {

class Peers {
 public:
  // Starts nothing. `options` outlives the peers.
  explicit Peers(const RunOptions& options) : options_(options) {}

  // Collective over all ranks of the launch. Throws on every rank that has met the others if any rank fails.
  // Only guard() and fail() may be called before.
  void rendezvous();

  comm::Transport& transport() { return *transport_; }  // between hosts
  survive::Control& control() { return *control_; }
  runtime::NodeWatch& nodes() { return nodes_; }  // for the running step
  // For engines of the run: a node that fails on one ends the process, and the watchdog watches their nodes.
  runtime::HostExecutor::Options executor_options();

  // Runs `action`; reports its failure to the other ranks. It wraps rendezvous() and all that follows.
  template <typename Action>
  void guard(Action action);

  // Collective: takes the run directory for this run, before anything in it is read or written.
  void take_directory();
  // Lets the next run take the directory: after leave(), or on a failure instead of leave(). Any thread.
  void release_directory();
  // RunError, on rank 0, if another run took the directory because it thought this run dead. Any thread.
  void require_directory() const;

  // Collective. No rank leaves before all are done: a rank that ends without a goodbye counts as lost.
  void leave();
  // Collective, after a step whose snapshot is sealed: ends this process; the next membership starts another.
  [[noreturn]] void end_membership(const std::string& why);
  // Ends this rank, and so all ranks, at once, for a reason outside of the ranks' work. Any thread.
  void fail(const base::Error& error);
  // Ends this process because a node of a step failed. Any thread.
  void end_process(std::exception_ptr failure);

 private:
  [[noreturn]] void throw_not_met() const;
  [[noreturn]] void end_for(const transport::LostRank& loss);
  void watch_progress();
  survive::WorkDone work_done();
  survive::Activity& activity() { return control_->activity(); }
  int rank() const { return options_.launch.rank; }

  const RunOptions& options_;
  std::unique_ptr<comm::Transport> transport_;
  std::unique_ptr<survive::Control> control_;
  std::mutex failing_;  // guards the creation of heartbeat_ and lock_: other threads may fail before
  std::unique_ptr<transport::Heartbeat> heartbeat_;
  std::unique_ptr<transport::ParentWatch> parent_watch_;
  std::unique_ptr<survive::RunLock> lock_;  // rank 0
  runtime::NodeWatch nodes_;
  std::unique_ptr<survive::Watchdog> watchdog_;
};

template <typename Action>
void Peers::guard(Action action) {
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

}  // namespace sluice::run
