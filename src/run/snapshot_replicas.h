// A rank's snapshots in memory while it trains: its own owner slices and a copy of those of the rank whose
// buddy it is, beside the next forward and done before the next update, on a thread of its own. And the way
// back: from what the ranks of an epoch hold to owner slices cut for as many as there are now.
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
    int stride = 1;     // between a rank and its buddy: the next node's, where there are several
    int64_t every = 0;  // steps between two snapshots; 0: as cost::steps_between_snapshots says
  };
  // `communicator` has all ranks and is used here alone; it and `store` outlive this.
  SnapshotReplicas(std::unique_ptr<comm::Communicator> communicator, const runtime::ParameterStore& store,
                   Options options);
  ~SnapshotReplicas();
  SnapshotReplicas(const SnapshotReplicas&) = delete;
  SnapshotReplicas& operator=(const SnapshotReplicas&) = delete;

  // Begins a snapshot of the present slices, `state` being the run's; on all ranks or none. Waits for the one
  // before.
  void begin(const RunState& state);
  // Returns when nothing is read of the slices any more and the snapshot is sealed. RunError when a peer is
  // lost, memory runs out, or slices came to their buddy otherwise than they were.
  void wait();

  // Whether to begin one behind `done` steps.
  bool due(int64_t done) const { return done >= next_; }
  // What the last snapshot cost this rank's step: its thread's time on a processor, and what wait() waited.
  // Not what went on beside the step.
  int64_t cost_ns() const { return computed_ns_ + waited_ns_; }
  // What all ranks send their buddies for one snapshot.
  int64_t sent_bytes() const;
  // From the cost on the dearest rank, a step's time and that between losses (0: none yet), when the next one
  // is due. The same on all ranks if these are.
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
  bool told_of_room_ = false;   // the thread's
  std::exception_ptr failure_;  // the thread's, read behind its end
  std::thread thread_;
};

// A run's state as text, and back. InputError when it is none.
std::string to_text(const RunState& state);
RunState run_state_from_text(std::string_view text);

// The state of the run at the seat's origin, as this rank holds it. REQUIRES: it holds some of the slices.
std::string snapshot_state(const survive::WorkerContext& worker_context);

// The seat's origin with holders whose memory still has the slices as they were sealed: a buddy's copy stands
// in for slices that have changed, and a warning names the rank whose memory that was. Nothing when some
// slices are whole nowhere. Collective.
std::optional<membership::Origin> intact_origin(const survive::WorkerContext& worker_context,
                                                survive::Control& control);

// Fills the owner slices from the seat's origin, which is intact. Collective over `communicator`, which has
// all ranks.
void restore(const survive::WorkerContext& worker_context, comm::Communicator& communicator,
             runtime::ParameterStore& store);

}  // namespace sluice::run
