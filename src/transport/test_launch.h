// For ranks of tests that exec another program.
#pragma once

#include <fcntl.h>

#include <cstdlib>

namespace sluice::transport {

// Lets the program that this rank execs inherit the descriptors from the launcher.
inline void leave_listeners_open() {
  for (const char* variable : {"SLUICE_LISTENING_FD", "SLUICE_SUPERVISOR_FD"}) {
    if (const char* number = ::getenv(variable)) ::fcntl(std::atoi(number), F_SETFD, 0);
  }
}

}  // namespace sluice::transport
