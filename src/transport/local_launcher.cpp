#include "transport/local_launcher.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

#include "base/error.h"
#include "base/group_limits.h"
#include "base/stop_signals.h"
#include "base/text.h"
#include "transport/socket.h"

namespace sluice::transport {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kLoopback = "127.0.0.1";
constexpr int kSignalStatus = 128;  // shells report a signal as this plus its number

struct Child {
  pid_t process = -1;
  bool joins = false;  // it was started in place of a lost rank
  bool ended = false;
  int status = 0;            // as returned by waitpid
  bool left_behind = false;  // the others continued, or completed the run, without it
  int64_t ran_ns = -1;       // CPU time when it was last seen to change …
  Clock::time_point ran_at;  // … and when that was

  bool was_killed() const { return WIFSIGNALED(status); }
  bool ended_well() const { return ended && status == 0; }
};

// The CPU time of a process; nullopt if the system does not tell.
std::optional<int64_t> processor_time_ns(pid_t process) {
  std::ifstream file(base::text("/proc/", process, "/schedstat"));
  int64_t time_ns = 0;
  return file >> time_ns ? std::optional(time_ns) : std::nullopt;
}

sigset_t watched_signals() {
  sigset_t set = base::stop_signals();
  sigaddset(&set, SIGCHLD);
  return set;
}

// Blocks the watched signals during its lifetime, so that sigtimedwait receives them.
class BlockedSignals {
 public:
  BlockedSignals() : watched_(watched_signals()) { pthread_sigmask(SIG_BLOCK, &watched_, &before_); }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  const sigset_t& watched() const { return watched_; }
  const sigset_t& before() const { return before_; }

 private:
  sigset_t watched_;
  sigset_t before_;
};

// How the ranks of this launch find and authenticate each other.
struct Meeting {
  Socket listener = listen_at(kLoopback);  // rank 0's, open from the start so that the port stays free
  int port = port_of(listener);
  std::string secret = random_secret();
  std::vector<int> supervisor_ports;  // by rank, in elastic runs
};

// Listening sockets that a child inherits.
struct Listeners {
  const Socket* store = nullptr;  // first used by rank 0
  Socket supervisor;
};

void set_variable(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

// Sets this process's environment variables and name for the given rank.
void become_rank(int rank, int ranks, const Meeting& meeting, const Listeners& listeners, bool joins) {
  set_variable("SLUICE_RANK", std::to_string(rank));
  set_variable("SLUICE_WORLD_SIZE", std::to_string(ranks));
  set_variable("SLUICE_LOCAL_RANK", std::to_string(rank));
  set_variable("SLUICE_LOCAL_SIZE", std::to_string(ranks));
  set_variable("SLUICE_MASTER_ADDR", kLoopback);
  set_variable("SLUICE_MASTER_PORT", std::to_string(meeting.port));
  set_variable("SLUICE_SECRET", meeting.secret);
  if (listeners.store) set_variable("SLUICE_LISTENING_FD", std::to_string(listeners.store->fd()));
  if (listeners.supervisor.is_open()) {
    std::vector<std::string> ports;
    for (const int port : meeting.supervisor_ports) ports.push_back(std::to_string(port));
    set_variable("SLUICE_SUPERVISORS", base::join(ports, ","));
    set_variable("SLUICE_SUPERVISOR_FD", std::to_string(listeners.supervisor.fd()));
    set_variable("SLUICE_JOINS", joins ? "1" : "0");
  }
  ::prctl(PR_SET_NAME, base::text("sluice rank ", rank).c_str());
}

class LocalRun {
 public:
  explicit LocalRun(const LocalLaunch& options) : options_(options) {}

  LocalResult run() {
    SLUICE_ASSERT(options_.work && options_.ranks > 0, "nothing to launch");
    try {
      do {
        run_once();
      } while (begins_anew());
      const bool none_well = !children_.empty() && std::ranges::none_of(children_, &Child::ended_well);
      if (result_.failed_rank < 0 && none_well) note_failure(0);
    } catch (...) {
      send_to_all(SIGKILL);
      for (const Child& child : children_) {
        if (!child.ended) waitpid(child.process, nullptr, 0);
      }
      throw;
    }
    for (const Child& child : children_) result_.statuses.push_back(shell_status(child.status));
    return result_;
  }

 private:
  void run_once() {
    meeting_ = {};
    children_.clear();
    result_ = {};
    killed_ = false;
    start_all();
    while (reap() > 0) {
      next_signal();
      end_frozen();
    }
  }

  // Waits for the pause from the options. A stop signal ends the wait, and the run counts as successful.
  bool begins_anew() {
    if (result_.failed_rank < 0 || stopping_ || !options_.begin_anew_after_ns) return false;
    const std::optional<int64_t> pause_ns = options_.begin_anew_after_ns();
    if (!pause_ns) return false;
    const sigset_t stopping = base::stop_signals();
    const timespec pause{*pause_ns / 1'000'000'000, *pause_ns % 1'000'000'000};
    say(base::text("all ranks are started anew in ", pause.tv_sec, " s"));
    stopping_ = sigtimedwait(&stopping, nullptr, &pause) > 0;
    if (stopping_) {
      result_ = {};
      children_.clear();
    }
    return !stopping_;
  }

  // The launcher's copy of the listener closes when this returns: after rank 0's death no process listens.
  void start_all() {
    sigset_t pending;
    sigpending(&pending);
    const sigset_t stopping = base::stop_signals();
    sigandset(&pending, &pending, &stopping);
    if (sigisemptyset(&pending) == 0) {
      throw base::RunError("stopped by a signal before the ranks had started");
    }
    const Socket store = std::move(meeting_.listener);
    std::vector<Listeners> listeners(static_cast<size_t>(options_.ranks));
    listeners[0].store = &store;
    for (Listeners& own : listeners) {
      if (options_.supervised) meeting_.supervisor_ports.push_back(listen(own));
    }
    for (int rank = 0; rank < options_.ranks; ++rank) {
      children_.push_back({start(rank, listeners, static_cast<size_t>(rank), false)});
    }
  }

  // Forks the process of a rank. It keeps its own listeners and closes the others': once their rank is gone,
  // no process may listen there.
  pid_t start(int rank, std::vector<Listeners>& listeners, size_t own, bool joins) {
    std::fflush(nullptr);  // or both processes would write buffered output
    const pid_t launcher = getpid();
    const pid_t process = fork();
    if (process < 0) throw base::RunError(base::text("cannot start rank ", rank, ": ", std::strerror(errno)));
    if (process > 0) return process;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(1);  // the launcher died before prctl
    sigprocmask(SIG_SETMASK, &signals_.before(), nullptr);
    for (size_t i = 0; i < listeners.size(); ++i) {
      if (i == own) continue;
      if (listeners[i].store) ::close(listeners[i].store->fd());
      listeners[i].supervisor.close();
    }
    become_rank(rank, options_.ranks, meeting_, listeners[own], joins);
    work();
  }

  [[noreturn]] void work() noexcept {
    options_.work();
    std::fflush(nullptr);
    _exit(0);
  }

  static int listen(Listeners& listeners) {
    listeners.supervisor = listen_at(kLoopback);
    return port_of(listeners.supervisor);
  }

  // Restarts a lost rank to join the others, if they still run. Returns whether it was restarted.
  bool replace(int rank) {
    Child& child = children_[static_cast<size_t>(rank)];
    const bool others_run = std::ranges::any_of(children_, [](const Child& one) { return !one.ended; });
    const bool over = std::ranges::any_of(children_, &Child::ended_well);
    const bool lost = child.was_killed() || (is_replaceable(child) && !child.joins);
    if (!options_.supervised || !others_run || over || stopping_ || result_.failed_rank >= 0 || !lost)
      return false;
    if (child.was_killed()) say(how_it_ended(rank));
    std::vector<Listeners> listeners(1);
    meeting_.supervisor_ports[static_cast<size_t>(rank)] = listen(listeners[0]);
    child = {.joins = true};
    child.process = start(rank, listeners, 0, true);
    return true;
  }

  static int shell_status(int status) {
    return WIFSIGNALED(status) ? kSignalStatus + WTERMSIG(status) : WEXITSTATUS(status);
  }

  void send_to_all(int signal) const {
    for (const Child& child : children_) {
      if (!child.ended) kill(child.process, signal);
    }
  }

  // Collects ended children. Returns how many still run.
  int reap() {
    int running = 0;
    int failed = -1;
    for (size_t rank = 0; rank < children_.size(); ++rank) {
      Child& child = children_[rank];
      if (!child.ended && waitpid(child.process, &child.status, WNOHANG) == child.process) {
        child.ended = true;
        if (child.status != 0 && (replace(static_cast<int>(rank)) || do_without(static_cast<int>(rank)))) {
          running += child.ended ? 0 : 1;
          continue;
        }
        // If several ended at once, a killed one is the cause and the others are consequences.
        const bool worse =
            failed < 0 || (WIFSIGNALED(child.status) && !WIFSIGNALED(children_[failed].status));
        if (child.status != 0 && worse) failed = static_cast<int>(rank);
      }
      running += child.ended ? 0 : 1;
    }
    if (failed >= 0 && is_cause(failed)) note_failure(failed);
    return running;
  }

  static bool is_replaceable(const Child& child) {
    return !child.was_killed() && WEXITSTATUS(child.status) == kReplaceableStatus;
  }

  // Whether the run succeeds without a rank that failed: others run or have succeeded, and the rank was left
  // behind or killed after a stop signal.
  bool do_without(int rank) {
    Child& child = children_[static_cast<size_t>(rank)];
    const auto did_without = [](const Child& one) { return !one.ended || one.status == 0; };
    const bool lost = child.was_killed() && (stopping_ || child.left_behind);
    if (!options_.supervised || !std::ranges::any_of(children_, did_without) ||
        !(lost || is_replaceable(child)))
      return false;
    if (lost && !child.left_behind) say(base::text(how_it_ended(rank), "; the others save without it"));
    child.left_behind = true;
    return true;
  }

  // Once some rank has completed the run, kills ranks that are frozen: they would never notice the end. A
  // live supervisor uses CPU time every second.
  void end_frozen() {
    if (!options_.supervised || std::ranges::none_of(children_, &Child::ended_well)) return;
    for (size_t rank = 0; rank < children_.size(); ++rank) {
      Child& child = children_[rank];
      if (child.ended || child.left_behind) continue;
      const std::optional<int64_t> ran_ns = processor_time_ns(child.process);
      if (!ran_ns || *ran_ns != child.ran_ns) {
        child.ran_ns = ran_ns.value_or(-1);
        child.ran_at = Clock::now();
      } else if (Clock::now() - child.ran_at > std::chrono::nanoseconds(options_.grace_ns)) {
        say(base::text("rank ", rank,
                       " stands still since the others came to the end without it: it is ended"));
        child.left_behind = true;
        kill(child.process, SIGKILL);
      }
    }
  }

  // Others may notice a killed rank and exit before waitpid reports the killed one.
  bool is_cause(int rank) const {
    if (result_.failed_rank < 0) return true;
    const auto was_killed = [&](int r) { return WIFSIGNALED(children_[static_cast<size_t>(r)].status); };
    return !killed_ && was_killed(rank) && !was_killed(result_.failed_rank);
  }

  void note_failure(int rank) {
    const int status = children_[static_cast<size_t>(rank)].status;
    if (result_.failed_rank < 0) kill_at_ = Clock::now() + std::chrono::nanoseconds(options_.grace_ns);
    result_.failed_rank = rank;
    result_.exit_status =
        WIFSIGNALED(status) || WEXITSTATUS(status) == kReplaceableStatus ? 1 : WEXITSTATUS(status);
    result_.failure = how_it_ended(rank);
    if (WIFSIGNALED(status)) say(result_.failure);  // a rank that exits by itself logs why
  }

  std::string how_it_ended(int rank) {
    const int status = children_[static_cast<size_t>(rank)].status;
    if (!WIFSIGNALED(status)) return base::text("rank ", rank, " exited with status ", WEXITSTATUS(status));
    const int signal = WTERMSIG(status);
    return base::text("rank ", rank, " was killed by signal ", signal, " (", strsignal(signal), ")",
                      signal == SIGKILL ? memory_kills_.explain() : "");
  }

  // Sleeps until a child ends, a signal comes, or the grace is over.
  void next_signal() {
    constexpr auto kLongest = std::chrono::seconds(1);  // in case another thread took the SIGCHLD
    auto left = std::chrono::nanoseconds(kLongest);
    if (result_.failed_rank >= 0) left = std::min(left, std::chrono::nanoseconds(kill_at_ - Clock::now()));
    if (left.count() <= 0) {
      if (!killed_) say("the other ranks did not end in time and are killed");
      killed_ = true;
      send_to_all(SIGKILL);
      left = kLongest;
    }
    const timespec timeout{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
    siginfo_t info{};
    const int signal = sigtimedwait(&signals_.watched(), &info, &timeout);
    const bool asks = signal > 0 && signal != SIGCHLD;
    stopping_ = stopping_ || asks;
    if (asks && !base::is_from_terminal(info)) send_to_all(signal);
  }

  void say(const std::string& line) const {
    if (options_.log) options_.log(line);
  }

  const LocalLaunch& options_;
  const BlockedSignals signals_;
  Meeting meeting_;  // for the ranks that currently run
  base::MemoryKills memory_kills_;
  std::vector<Child> children_;
  bool stopping_ = false;
  LocalResult result_;
  Clock::time_point kill_at_;
  bool killed_ = false;
};

}  // namespace

LocalResult launch_locally(const LocalLaunch& options) { return LocalRun(options).run(); }

}  // namespace sluice::transport
