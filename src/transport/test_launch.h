// Ranks of tests that become another program.
#pragma once

#include <fcntl.h>

#include <cstdlib>

namespace sluice::transport {

// Leaves the descriptors that the launcher gave this rank to the program that it becomes.
inline void leave_listeners_open() {
  for (const char* variable : {"SLUICE_LISTENING_FD", "SLUICE_SUPERVISOR_FD"}) {
    if (const char* number = ::getenv(variable)) ::fcntl(std::atoi(number), F_SETFD, 0);
  }
}

}  // namespace sluice::transport
