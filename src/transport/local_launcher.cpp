#include "transport/local_launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "transport/socket.h"

namespace sluice::transport {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kLoopback = "127.0.0.1";
constexpr int kSignalStatus = 128;  // what shells add to a signal's number

struct Child {
  pid_t process = -1;
  bool ended = false;
  int status = 0;  // as waitpid gives it
};

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&set, signal);
  return set;
}

// Blocks the watched signals as long as it lives, so that sigtimedwait gets them.
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

// The null-terminated arrays that exec wants, over strings that outlive it.
std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

// How the ranks of this launch find and know each other.
struct Meeting {
  Socket listener = listen_at(kLoopback);  // rank 0's from its start on, so the port can't be taken meanwhile
  int port = port_of(listener);
  std::string secret = random_secret();
};

std::vector<std::string> environment_of(const LocalLaunch& options, int rank, const Meeting& meeting) {
  Environment environment = options.environment;
  environment["SLUICE_RANK"] = std::to_string(rank);
  environment["SLUICE_WORLD_SIZE"] = std::to_string(options.ranks);
  environment["SLUICE_LOCAL_RANK"] = std::to_string(rank);
  environment["SLUICE_LOCAL_SIZE"] = std::to_string(options.ranks);
  environment["SLUICE_MASTER_ADDR"] = kLoopback;
  environment["SLUICE_MASTER_PORT"] = std::to_string(meeting.port);
  environment["SLUICE_SECRET"] = meeting.secret;
  if (rank == 0) environment["SLUICE_LISTENING_FD"] = std::to_string(meeting.listener.fd());
  std::vector<std::string> lines;
  for (const auto& [name, value] : environment) lines.push_back(base::text(name, "=", value));
  return lines;
}

// The child's side of fork: only calls that are safe between fork and exec.
[[noreturn]] void become(char* const* command, char* const* environment, pid_t launcher,
                         const sigset_t& signals, int error_pipe, int kept_open) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(1);  // it died before the line above
  sigprocmask(SIG_SETMASK, &signals, nullptr);
  if (kept_open >= 0) fcntl(kept_open, F_SETFD, 0);
  execvpe(command[0], command, environment);
  const int error = errno;
  static_cast<void>(!write(error_pipe, &error, sizeof error));
  _exit(1);
}

// Returns once the child's exec has succeeded: it closes the pipe.
pid_t start(const LocalLaunch& options, int rank, const Meeting& meeting, const BlockedSignals& signals) {
  std::vector<std::string> command = options.command;
  std::vector<std::string> environment = environment_of(options, rank, meeting);
  const std::vector<char*> command_pointers = pointers_to(command);
  const std::vector<char*> environment_pointers = pointers_to(environment);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    throw base::RunError(base::text("cannot start rank ", rank, ": ", std::strerror(errno)));
  }
  const Socket read_end(ends[0]);
  Socket write_end(ends[1]);
  const pid_t launcher = getpid();
  const pid_t process = fork();
  if (process == 0) {
    become(command_pointers.data(), environment_pointers.data(), launcher, signals.before(), write_end.fd(),
           rank == 0 ? meeting.listener.fd() : -1);
  }
  int error = process < 0 ? errno : 0;
  write_end.close();
  if (process > 0) static_cast<void>(!read(read_end.fd(), &error, sizeof error));
  if (error == 0) return process;
  if (process > 0) waitpid(process, nullptr, 0);
  throw base::RunError(
      base::text("cannot start rank ", rank, " (", options.command[0], "): ", std::strerror(error)));
}

class LocalRun {
 public:
  explicit LocalRun(const LocalLaunch& options) : options_(options) {}

  LocalResult run() {
    SLUICE_ASSERT(!options_.command.empty() && options_.ranks > 0, "nothing to launch");
    try {
      start_all();
      while (reap() > 0) next_signal();
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
  // The launcher's own end of the listener closes behind it: when rank 0 dies, nobody listens any more.
  void start_all() {
    sigset_t pending;
    sigpending(&pending);
    if (sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1) {
      throw base::RunError("stopped by a signal before the ranks had started");
    }
    const Meeting meeting;
    for (int rank = 0; rank < options_.ranks; ++rank) {
      children_.push_back({start(options_, rank, meeting, signals_)});
    }
  }

  static int shell_status(int status) {
    return WIFSIGNALED(status) ? kSignalStatus + WTERMSIG(status) : WEXITSTATUS(status);
  }

  void send_to_all(int signal) const {
    for (const Child& child : children_) {
      if (!child.ended) kill(child.process, signal);
    }
  }

  // Collects who has ended; how many still run.
  int reap() {
    int running = 0;
    int failed = -1;
    for (size_t rank = 0; rank < children_.size(); ++rank) {
      Child& child = children_[rank];
      if (!child.ended && waitpid(child.process, &child.status, WNOHANG) == child.process) {
        child.ended = true;
        // Of several at once, a killed one is the cause and the others are the consequence.
        const bool worse =
            failed < 0 || (WIFSIGNALED(child.status) && !WIFSIGNALED(children_[failed].status));
        if (child.status != 0 && worse) failed = static_cast<int>(rank);
      }
      running += child.ended ? 0 : 1;
    }
    if (failed >= 0 && is_cause(failed)) note_failure(failed);
    return running;
  }

  // Others may notice a killed rank, and end, before the system has taken it down.
  bool is_cause(int rank) const {
    if (result_.failed_rank < 0) return true;
    const auto was_killed = [&](int r) { return WIFSIGNALED(children_[static_cast<size_t>(r)].status); };
    return !killed_ && was_killed(rank) && !was_killed(result_.failed_rank);
  }

  void note_failure(int rank) {
    const int status = children_[static_cast<size_t>(rank)].status;
    if (result_.failed_rank < 0) kill_at_ = Clock::now() + std::chrono::nanoseconds(options_.grace_ns);
    result_.failed_rank = rank;
    if (WIFSIGNALED(status)) {
      const int signal = WTERMSIG(status);
      result_.exit_status = 1;
      result_.failure =
          base::text("rank ", rank, " was killed by signal ", signal, " (", strsignal(signal), ")");
    } else {
      result_.exit_status = WEXITSTATUS(status);
      result_.failure = base::text("rank ", rank, " exited with status ", WEXITSTATUS(status));
    }
    if (WIFSIGNALED(status)) say(result_.failure);  // who exits says why itself
  }

  // Sleeps until a child ends, a signal comes, or the grace is over.
  void next_signal() {
    constexpr auto kLongest = std::chrono::seconds(1);  // against a SIGCHLD that another thread took
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
    const bool from_terminal = signal == SIGINT && info.si_code == SI_KERNEL;
    if ((signal == SIGTERM || signal == SIGINT) && !from_terminal) send_to_all(signal);
  }

  void say(const std::string& line) const {
    if (options_.say) options_.say(line);
  }

  const LocalLaunch& options_;
  const BlockedSignals signals_;
  std::vector<Child> children_;
  LocalResult result_;
  Clock::time_point kill_at_;
  bool killed_ = false;
};

}  // namespace

LocalResult launch_locally(const LocalLaunch& options) { return LocalRun(options).run(); }

}  // namespace sluice::transport
