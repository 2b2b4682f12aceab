#include "survive/child_process.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace sluice::survive {

void ChildProcess::start(const std::function<int()>& work) {
  SLUICE_ASSERT(!runs(), "a second child process");
  const pid_t parent = getpid();
  std::fflush(nullptr);  // or both processes would write buffered output
  id_ = fork();
  if (id_ < 0) throw base::RunError(base::text("cannot start a process: ", std::strerror(errno)));
  if (id_ > 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const bool in_time = getppid() == parent;  // the parent may have died before prctl
  _exit(in_time ? work() : 1);
}

void ChildProcess::send(int signal) const {
  if (runs()) kill(id_, signal);
}

std::optional<int> ChildProcess::reap() {
  int status = 0;
  if (!runs() || waitpid(id_, &status, WNOHANG) != id_) return std::nullopt;
  id_ = -1;
  return status;
}

int ChildProcess::wait() {
  int status = 0;
  waitpid(std::exchange(id_, -1), &status, 0);
  return status;
}

void ChildProcess::stop() {
  send(SIGKILL);
  if (runs()) wait();
}

}  // namespace sluice::survive
