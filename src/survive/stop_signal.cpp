#include "survive/stop_signal.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <exception>
#include <utility>

#include "base/error.h"
#include "base/steady_time.h"
#include "base/stop_signals.h"

namespace sluice::survive {
namespace {

bool is_pending() {
  sigset_t pending;
  ::sigpending(&pending);
  const sigset_t stopping = base::stop_signals();
  ::sigandset(&pending, &pending, &stopping);
  return ::sigisemptyset(&pending) == 0;
}

}  // namespace

StopSignal::StopSignal(std::function<void()> end_now, Options options)
    : end_now_(std::move(end_now)), again_ns_(options.again_ns), deferring_(options.deferring) {
  const sigset_t signals = base::stop_signals();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signals_ = ::signalfd(-1, &signals, SFD_CLOEXEC);
  ending_ = ::eventfd(0, EFD_CLOEXEC);
  if (signals_ < 0 || ending_ < 0) throw base::RunError("cannot watch for SIGTERM: too many open files");
  thread_ = std::thread([this] { watch(); });
}

StopSignal::~StopSignal() {
  ::eventfd_write(ending_, 1);
  thread_.join();
  ::close(signals_);
  ::close(ending_);
  // The process is ending because of a signal, or by an error while one may be on its way to the whole group:
  // its default action would take the place of the message and the status.
  if (requested_ || is_pending() || std::uncaught_exceptions() > 0) return;
  const sigset_t signals = base::stop_signals();
  ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

void StopSignal::request() {
  if (!requested_.exchange(true)) first_ns_ = base::now_ns();
}

void StopSignal::watch() {
  pollfd waiting[] = {{signals_, POLLIN, 0}, {ending_, POLLIN, 0}};
  while (true) {
    if (::poll(waiting, 2, -1) < 0) continue;
    if (waiting[1].revents != 0) return;
    signalfd_siginfo info{};
    if (::read(signals_, &info, sizeof info) != static_cast<ssize_t>(sizeof info)) continue;
    const bool again = requested_ && base::now_ns() - first_ns_ >= again_ns_;
    request();
    if (again || !deferring_) end_now_();
  }
}

}  // namespace sluice::survive
