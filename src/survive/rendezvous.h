// Lets supervisors find each other if the launcher does not give their addresses. They meet at the store that
// the launcher's ranks share, each in a child process: libtorch starts threads for a store, and a supervisor
// must stay free to fork.
#pragma once

#include <cstdint>
#include <string>

#include "membership/membership.h"
#include "survive/child_process.h"
#include "transport/launch.h"
#include "transport/socket.h"

namespace sluice::survive {

class Rendezvous {
 public:
  // Starts to meet; collective over the launch's ranks, each of which brings an arrival. RunError if the
  // system cannot create a process.
  Rendezvous(const transport::Launch& launch, int64_t join_timeout_ns, const membership::Arrival& own);

  // Becomes readable when data or end-of-file arrives: read() does not block then. read() returns false at
  // end-of-file.
  int fd() const { return reading_.fd(); }
  bool read();
  // After end-of-file: 0, or the exit status of a failure that was already reported to the user. The child
  // process serves slower ranks until it is over or this object is destroyed.
  int status();
  bool is_over() { return process_.reap().has_value(); }
  membership::FirstMembership first_membership() const;

 private:
  ChildProcess process_;
  transport::Socket reading_;
  std::string answer_;
};

}  // namespace sluice::survive
