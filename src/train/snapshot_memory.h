// Memory that outlives a rank's workers: its supervisor makes it, the workers that it forks one after another
// find it. It has two slots for snapshots; the one that is written never is the newest sealed one, so a
// worker may die at any moment.
//
// A slot holds bytes of three parts: the rank's own owner slices, those of the rank whose buddy it is, and
// the state of the run as text. What is sealed stays as it is until its slot is opened again.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "membership/epoch.h"
#include "transport/socket.h"

namespace sluice::train {

// What a slot holds; see membership::Held.
struct Snapshot {
  int64_t step = 0;
  int64_t epoch = 0;
  int32_t ranks = 0;
  int32_t rank = 0;
  int32_t copied_rank = -1;  // whose buddy the rank is; -1: it has none
  uint64_t own_hash = 0;
  uint64_t copy_hash = 0;
  int64_t own_bytes = 0;
  int64_t copy_bytes = 0;
  int64_t text_bytes = 0;
  int64_t bytes() const { return own_bytes + copy_bytes + text_bytes; }
};

class SnapshotMemory {
 public:
  // RunError when the system gives none.
  SnapshotMemory();
  ~SnapshotMemory();
  SnapshotMemory(const SnapshotMemory&) = delete;
  SnapshotMemory& operator=(const SnapshotMemory&) = delete;

  // What is sealed. Also while a worker writes.
  std::vector<membership::Held> held() const;

  // A mapping of a slot's bytes, as long as it lives.
  class View {
   public:
    View(int fd, Snapshot snapshot);
    View(View&& other) noexcept;
    View& operator=(View&&) = delete;
    ~View();

    const Snapshot& snapshot() const { return snapshot_; }
    char* own() const { return bytes_; }
    char* copy() const { return bytes_ + snapshot_.own_bytes; }
    char* text() const { return bytes_ + snapshot_.own_bytes + snapshot_.copy_bytes; }

   private:
    Snapshot snapshot_;
    char* bytes_ = nullptr;
  };

  // Forgets all but the slices of that moment, which an epoch goes on from: those that are sealed next don't
  // take their place.
  void keep_only(int64_t step, int64_t epoch);

  // The older slot, unsealed, with room for `snapshot`, whose hashes are not known yet. RunError when memory
  // runs out.
  View open(const Snapshot& snapshot);
  // What was written into the opened view is whole.
  void seal(const Snapshot& snapshot);
  // The sealed slices of that moment.
  std::optional<View> find(int64_t step, int64_t epoch) const;

  // The supervisor's wish that the worker end behind its step, and the worker's word that nothing is left to
  // do but to exit.
  void ask_for_boundary() { control_->boundary = 1; }
  bool boundary_is_asked() const { return control_->boundary != 0; }
  void set_done() { control_->done = 1; }
  bool is_done() const { return control_->done != 0; }
  // Before a worker starts.
  void clear_words() { control_->boundary = control_->done = 0; }

 private:
  struct Seal {
    std::atomic<int64_t> serial = 0;  // 0: not sealed; else higher the later
    Snapshot snapshot;
  };
  struct Control {
    std::atomic<int> boundary = 0;
    std::atomic<int> done = 0;
    std::array<Seal, 2> seals;
  };

  size_t older() const;

  Control* control_ = nullptr;  // shared with the workers
  std::array<transport::Socket, 2> files_;
};

}  // namespace sluice::train
