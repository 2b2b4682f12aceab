// Keeps a rank's snapshots in memory: its own owner slices, and a copy of the slices of the rank whose buddy
// it is. Copying overlaps the next forward on a thread of its own, and ends before the next update. Restoring
// redistributes the slices that the ranks of a membership hold to the present number of ranks.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "comm/transport.h"
#include "run/checkpoints.h"
#include "runtime/parameter_store.h"
#include "survive/control.h"
#include "survive/supervisor.h"

namespace sluice::run {

class SnapshotReplicas {
 public:
  struct Options {
    survive::WorkerContext worker_context;
    int stride = 1;     // distance from a rank to its buddy: the next node's rank, if there are several nodes
    int64_t every = 0;  // steps between two snapshots; 0: chosen by cost::steps_between_snapshots
  };
  // `communicator` has all ranks and is used by this object alone. It and `store` outlive this object.
  SnapshotReplicas(std::unique_ptr<comm::Communicator> communicator, const runtime::ParameterStore& store,
                   Options options);
  ~SnapshotReplicas();
  SnapshotReplicas(const SnapshotReplicas&) = delete;
  SnapshotReplicas& operator=(const SnapshotReplicas&) = delete;

  // Begins a snapshot of the present slices; `state` is the run's. Called on all ranks or none. Waits for the
  // previous snapshot.
  void begin(const RunState& state);
  // Returns when the slices are no longer read and the snapshot is sealed. RunError if a peer is lost, memory
  // runs out, or the slices that arrived at their buddy differ from those sent.
  void wait();

  // Whether to begin a snapshot after `done` steps.
  bool due(int64_t done) const { return done >= next_; }
  // The cost of the last snapshot to this rank's step: its thread's processor time, and the time in wait().
  // The time that overlapped the step is not counted.
  int64_t cost_ns() const { return computed_ns_ + waited_ns_; }
  // The bytes that all ranks together send to their buddies for one snapshot.
  int64_t sent_bytes() const;
  // Sets the step of the next snapshot from the cost on the slowest rank, the time of a step and the time
  // between losses (0: none yet). Equal arguments give the same step on all ranks.
  void schedule(int64_t done, int64_t most_cost_ns, int64_t step_ns, int64_t between_losses_ns);

 private:
  void take(const std::string& text, int64_t step);
  void exchange_copies(survive::Snapshot& snapshot, survive::SnapshotMemory::View& view);
  int rank_at(int distance) const;

  const std::unique_ptr<comm::Communicator> communicator_;
  const runtime::ParameterStore& store_;
  const Options options_;
  int64_t next_ = 0;
  std::atomic<int64_t> computed_ns_ = 0;
  int64_t waited_ns_ = 0;
  bool told_of_room_ = false;   // used by the thread alone
  std::exception_ptr failure_;  // the thread's; read after it ends
  std::thread thread_;
};

// A run's state as text, and back. InputError if the text is not a state.
std::string to_text(const RunState& state);
RunState run_state_from_text(std::string_view text);

// The run's state at the worker's origin, as this rank holds it. REQUIRES: it holds some of the slices.
std::string snapshot_state(const survive::WorkerContext& worker_context);

// The worker's origin, with holders whose memory still has the slices as they were sealed. A buddy's copy
// replaces slices that have changed, and a warning names the rank with the faulty memory. Nothing if some
// slices are whole nowhere. Collective.
std::optional<membership::Origin> intact_origin(const survive::WorkerContext& worker_context,
                                                survive::Control& control);

// Fills the owner slices from the worker's origin, which is intact. Collective over `communicator`, which has
// all ranks.
void restore(const survive::WorkerContext& worker_context, comm::Communicator& communicator,
             runtime::ParameterStore& store);

}  // namespace sluice::run
