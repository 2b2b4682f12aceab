// Simulates the operations of all ranks in virtual time, in one thread and linear time: for fuzzing schedules
// for deadlocks under random delays. It knows events, streams and communicators, but no graphs.
//
// Semantics: an event ends on all its members at once. It starts when, on every member, the previous event on
// its stream, the previous event on its communicator and its dependencies have ended. It lasts its duration
// plus a random delay. There is no other contention, so start times are longest paths over these waits, and a
// deadlock is a cycle among them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::comm {

inline constexpr int kNoCommunicator = -1;

struct VirtualEvent {
  std::vector<int> members;            // ranks in any order; a single one: compute
  int communicator = kNoCommunicator;  // any id ≥ 0
  int64_t duration_ns = 0;
  std::string name;  // for reports; may be empty
};

struct VirtualOperation {
  int event = 0;                  // index into events
  int stream = 0;                 // any id ≥ 0, of this rank
  std::vector<int> dependencies;  // events that must have ended; this rank is a member of each
};

struct VirtualProgram {
  std::vector<VirtualEvent> events;
  // By rank: the operations in the order in which its host thread issues them. This is also the FIFO
  // order of each of its streams and communicators. Each member issues an event exactly once, other ranks
  // never.
  std::vector<std::vector<VirtualOperation>> ranks;
};

struct VirtualOptions {
  uint64_t seed = 1;
  int64_t max_delay_ns = 0;  // each event takes 0 to this much longer, uniformly distributed
};

struct VirtualResult {
  std::vector<int64_t> start_ns;  // by event; -1: never started
  std::vector<int64_t> end_ns;
  int64_t makespan_ns = 0;  // the end of the last event
  std::string deadlock;     // empty: every event ran; else the cycle, naming ranks, streams and events
};

// REQUIRES: `program` is well formed as described above (asserted).
VirtualResult run_virtually(const VirtualProgram& program, const VirtualOptions& options);

}  // namespace sluice::comm
