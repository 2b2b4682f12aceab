// How supervisors come to know each other where their launcher does not name them: at the store that the
// launcher's ranks share, in a process of its own, for what libtorch starts for a store has no place in a
// process that forks.
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
  // Begins it: collective over the launch's ranks, each of which brings an arrival. RunError when the system
  // gives no process.
  Rendezvous(const transport::Launch& launch, int64_t join_timeout_ns, const membership::Arrival& own);

  // Something to read, or the end, is there when this is readable: then read() does not wait. False at the
  // end.
  int fd() const { return reading_.fd(); }
  bool read();
  // Behind the end: 0, or the exit status of a failure, of which the user has been told. The process goes on
  // while this lives, for ranks that have not heard yet, until it is over.
  int status();
  bool is_over() { return process_.reap().has_value(); }
  membership::FirstMembership first_membership() const;

 private:
  ChildProcess process_;
  transport::Socket reading_;
  std::string answer_;
};

}  // namespace sluice::survive
