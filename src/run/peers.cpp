#include "run/peers.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "transport/gloo.h"

namespace sluice::run {

using base::text;

void Peers::rendezvous() {
  if (options_.launch.has_parent) {
    parent_watch_ = std::make_unique<transport::ParentWatch>([this](pid_t parent) {
      fail(
          base::RunError(text("the launcher (process ", parent, ") died: a rank does not go on without it")));
    });
  }
  const int64_t join_timeout_ns = options_.config.train.join_timeout_s * 1'000'000'000;
  transport::GlooOptions gloo;
  gloo.launch = options_.launch;
  gloo.join_timeout_ns = join_timeout_ns;
  transport_ = transport::gloo_transport(gloo);
  control_ = std::make_unique<survive::Control>(*transport_);
  const auto meeting = activity().shared("meeting them");
  watch_progress();
  transport::HeartbeatOptions heartbeat;
  heartbeat.key = options_.launch.key();
  heartbeat.address = transport::own_address(gloo);
  heartbeat.join_timeout_ns = join_timeout_ns;
  heartbeat.at_work = [this] { return survive::at_own_work(activity(), nodes_); };
  heartbeat.on_lost = [this](const transport::LostRank& loss) { end_for(loss); };
  auto beating = std::make_unique<transport::Heartbeat>(control_->communicator(), std::move(heartbeat));
  {
    const std::lock_guard lock(failing_);
    heartbeat_ = std::move(beating);
  }
  if (options_.worker_context) options_.worker_context->memory->set_met();
  if (rank() == 0 && !options_.launch.single_host() && options_.launch.secret.empty()) {
    base::log_warning(
        "SLUICE_SECRET is not set: whoever reaches this network can pass for a rank "
        "(docs/operating.md)");
  }
}

void Peers::watch_progress() {
  if (options_.config.train.stall_s == 0) return;
  survive::WatchdogOptions options;
  // A run that was restarted as stuck before it ended a step was perhaps only slow: the limit doubles.
  const int64_t restarts = options_.worker_context ? options_.worker_context->fruitless : 0;
  options.stall_ns = (options_.config.train.stall_s * 1'000'000'000) << std::min<int64_t>(restarts, 8);
  options.others_at_own_work = [this] {
    const std::lock_guard lock(failing_);
    return heartbeat_ && heartbeat_->others_at_work();
  };
  options.work_done = [this] { return work_done(); };
  options.on_stall = [this](const std::string& stalled) {
    const base::RunError stall(text(
        "no progress on rank ", rank(), ": ", stalled, " (train.stall_s = ", options_.config.train.stall_s,
        " says how long that may be: raise it where the machine is merely slow)"));
    if (!options_.worker_context) return fail(stall);
    base::log_warning(stall.what());
    release_directory();
    options_.end_process(MembershipChange(stall.what()));
  };
  watchdog_ = std::make_unique<survive::Watchdog>(activity(), nodes_, std::move(options));
}

// The process's work, without the transfers that keep its lock.
survive::WorkDone Peers::work_done() {
  survive::WorkDone work_done = survive::process_work_done();
  const std::lock_guard lock(failing_);
  if (lock_) work_done.transfers -= lock_->transfers();
  return work_done;
}

// Takes the run directory before anything in it is read or written.
void Peers::take_directory() {
  control_->together("taking the run directory", [&] {
    if (rank() != 0) return;
    survive::RunLockOptions lock;
    lock.command = options_.command;
    if (options_.worker_context) lock.run = options_.worker_context->run;
    lock.log = &base::log_info;
    lock.on_look = [this] { activity().advance(); };
    lock.on_lost = [this](const base::Error& error) { fail(error); };
    auto taken = std::make_unique<survive::RunLock>(options_.config.log.dir, std::move(lock));
    const std::lock_guard guard(failing_);
    lock_ = std::move(taken);
  });
}

void Peers::release_directory() {
  const std::lock_guard guard(failing_);
  if (lock_) lock_->release();
}

void Peers::require_directory() const {
  if (lock_) lock_->require_held();
}

// A node failed. An operation with a lost peer may fail before the loss is reported here: then the peer is to
// blame. Otherwise this rank is, and the others must be notified.
runtime::HostExecutor::Options Peers::executor_options() {
  runtime::HostExecutor::Options options;
  options.on_failure = [this](std::exception_ptr failure) { end_process(failure); };
  options.watch = &nodes_;
  return options;
}

void Peers::end_process(std::exception_ptr failure) {
  constexpr int64_t kNewsNs = 2'000'000'000;
  const base::Error error = survive::as_error(failure);
  const int64_t news_ns = options_.launch.world_size > 1 ? kNewsNs : 0;
  if (const auto loss = heartbeat_->wait_for_lost_rank(news_ns)) end_for(*loss);
  fail(error);
}

// All ranks may have the same failure to report, such as a stop signal: the first report counts.
void Peers::fail(const base::Error& error) {
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

// A rank lost without reporting a failure of its own is left behind, if there is a supervisor.
void Peers::end_for(const transport::LostRank& loss) {
  release_directory();
  if (loss.reported) options_.end_process(survive::QuietError(loss.text, loss.exit_status));
  if (options_.worker_context) options_.end_process(MembershipChange(loss.text));
  options_.end_process(base::RunError(loss.text));
  SLUICE_ASSERT(false, "end_process returned");
}

// The failure being handled occurred before the ranks met. In a later membership it only means that a rank is
// gone; a rank that failed earlier reports its own failure.
void Peers::throw_not_met() const {
  if (options_.failure) std::rethrow_exception(options_.failure);
  if (!options_.worker_context) throw;
  throw MembershipChange(survive::as_error(std::current_exception()).what());
}

void Peers::end_membership(const std::string& why) {
  leave();
  release_directory();
  options_.end_process(MembershipChange(why));
  SLUICE_ASSERT(false, "end_process returned");
}

void Peers::leave() {
  const auto leaving = activity().own("leaving");
  control_->barrier();
  heartbeat_->goodbye();
}

}  // namespace sluice::run
