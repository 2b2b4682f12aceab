// The signals that tell a run to save and end.
#pragma once

#include <signal.h>

namespace sluice::base {

// SIGTERM and SIGINT; SIGUSR1 and SIGUSR2, which batch systems send ahead of a job's end; and SIGHUP of a
// lost terminal, unless the process was told to ignore it (nohup).
sigset_t stop_signals();

// Ctrl-C, which a terminal sends to all processes of a run itself.
bool is_from_terminal(const siginfo_t& info);

}  // namespace sluice::base
