// The signals that ask a run to save a checkpoint and end.
#pragma once

#include <signal.h>

namespace sluice::base {

// SIGTERM and SIGINT; SIGUSR1 and SIGUSR2, which batch systems send before a job's end; and SIGHUP of a lost
// terminal, unless the process ignores that (nohup).
sigset_t stop_signals();

// Whether it is a Ctrl-C, which the terminal itself sends to all processes of a run.
bool is_from_terminal(const siginfo_t& info);

}  // namespace sluice::base
