// The other ranks of a run: how this one meets them, hears that one is lost, tells of its own failure, and
// leaves them. Whatever ends this rank also lets go of the run directory.
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

  // Collective over all ranks of the launch. Throws on every rank that has met the others when any rank
  // fails. But for guard() and fail() nothing may be called before.
  void rendezvous();

  comm::Transport& transport() { return *transport_; }  // between hosts
  survive::Control& control() { return *control_; }
  runtime::NodeWatch& nodes() { return nodes_; }  // of the step under way
  // For engines of the run: a node that fails on one ends the process, and the watchdog sees all nodes.
  runtime::HostExecutor::Options executor_options();

  // Runs `action`; lets the other ranks know if it fails. Around meet() and all that follows.
  template <typename Action>
  void guard(Action action);

  // Collective: the run directory is this run's, before anything in it is read or written.
  void take_directory();
  // After leave(), or instead of it by who fails: the next run may have the run directory. Any thread.
  void release_directory();
  // RunError, on rank 0, when another run has taken the run directory for a dead one's. Any thread.
  void require_directory() const;

  // Collective. Nobody goes before all are done: who ends without a word is taken for lost.
  void leave();
  // Collective, behind a step whose snapshot is sealed: ends this process, for the next epoch's.
  [[noreturn]] void end_membership(const std::string& why);
  // Something from outside of the ranks' work ends this one, and so all, at once. Any thread.
  void fail(const base::Error& error);
  // A node of a step failed. Any thread.
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
  std::mutex failing_;  // guards when heartbeat_ and lock_ come to be: other threads may fail before
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
