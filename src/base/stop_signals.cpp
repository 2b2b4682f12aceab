#include "base/stop_signals.h"

#include <initializer_list>

namespace sluice::base {

sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) sigaddset(&signals, signal);
  // A blocked signal is queued even if it is ignored, and would then be read like any other.
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&signals, SIGHUP);
  return signals;
}

bool is_from_terminal(const siginfo_t& info) { return info.si_signo == SIGINT && info.si_code == SI_KERNEL; }

}  // namespace sluice::base
