// Runs what all ranks issue in virtual time, in one thread and in linear time: to fuzz schedules for
// deadlocks under random delays. It knows events, streams and communicators, nothing of graphs.
//
// Semantics: an event ends on all its members at once. It starts when, on every member, the event before it
// on its stream, the event before it on its communicator and its dependencies have ended; it lasts its
// duration plus a random delay. Nothing else competes, so starts are longest paths over these waits and a
// deadlock is a cycle among them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::comm {

inline constexpr int kNoCommunicator = -1;

struct VirtualEvent {
  std::vector<int> members;            // ranks; one: compute. Order doesn't matter.
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
  // Of each rank the operations in the order in which its host thread issues them. This order is the FIFO
  // of each of its streams and of each of its communicators. A member issues an event exactly once, others
  // never.
  std::vector<std::vector<VirtualOperation>> ranks;
};

struct VirtualOptions {
  uint64_t seed = 1;
  int64_t max_delay_ns = 0;  // each event takes uniformly 0 … this much longer
};

struct VirtualResult {
  std::vector<int64_t> start_ns;  // by event; -1: never started
  std::vector<int64_t> end_ns;
  int64_t makespan_ns = 0;  // the last end
  std::string deadlock;     // empty: every event ran. Else the cycle, naming ranks, streams, events.
};

// REQUIRES: `program` is well formed as described above (asserted).
VirtualResult run_virtually(const VirtualProgram& program, const VirtualOptions& options);

}  // namespace sluice::comm
