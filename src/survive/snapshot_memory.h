// Memory that outlives a rank's workers: its supervisor makes it, the workers that it forks one after another
// find it. It has two slots for snapshots; the one that is written never is the newest sealed one, so a
// worker may die at any moment.
//
// A slot holds bytes of three parts: the rank's own owner slices, those of the rank whose buddy it is, and
// the state of the run as text. What is sealed stays as it is until its slot is opened again.
//
// Where a launcher ends all ranks when one is lost and starts them anew, the memory has a name: files of a
// folder in memory (/dev/shm), which the new supervisor finds. Whoever uses such files holds a lock (flock)
// on the first of them, with its workers; files that nobody holds are a dead supervisor's.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "membership/membership.h"
#include "transport/socket.h"

namespace sluice::survive {

// What a slot holds; see membership::Held.
struct Snapshot {
  int64_t step = 0;
  int64_t membership = 0;
  int32_t ranks = 0;
  int32_t rank = 0;
  int32_t copied_rank = -1;  // whose buddy the rank is; -1: it has none
  uint64_t own_hash = 0;
  uint64_t copy_hash = 0;
  uint64_t text_hash = 0;
  int64_t own_bytes = 0;
  int64_t copy_bytes = 0;
  int64_t text_bytes = 0;
  int64_t bytes() const { return own_bytes + copy_bytes + text_bytes; }
};

// Where memory with a name lies. Two runs are the same one if their identity is.
struct NamedMemory {
  std::filesystem::path folder = "/dev/shm";
  std::string identity;    // of few letters and digits: part of the files' names
  bool takes_up = false;   // what a dead supervisor of the run has left; else it is removed
  int64_t stale_s = 3600;  // without a snapshot: what other runs of this user left is removed
};

class SnapshotMemory {
 public:
  // Without a name: goes with the process. RunError when the system gives none.
  SnapshotMemory();
  // The newest that a dead supervisor left, or new files, which remain until remove_name().
  explicit SnapshotMemory(const NamedMemory& named);
  ~SnapshotMemory();
  SnapshotMemory(const SnapshotMemory&) = delete;
  SnapshotMemory& operator=(const SnapshotMemory&) = delete;

  // What is sealed. Also while a worker writes.
  std::vector<membership::HeldSnapshot> snapshots() const;

  // Whether it has the name that was asked for, and why not.
  bool has_name() const { return !name_.empty(); }
  const std::string& nameless_because() const { return nameless_because_; }
  // Whether the folder had no room for the snapshot that was sealed last: it goes with this process.
  bool lacks_room() const;

  // Nobody is to find this memory any more: the run has ended.
  void remove_name();
  // Nor what dead supervisors of the run have left in the folder.
  static void remove_left(const NamedMemory& named);
  // Steps and epochs mean the same moments only in one history: of attempts of which each took up what the
  // one before had left. 0: of none yet.
  uint64_t history() const { return control_->history; }
  void set_history(uint64_t history) { control_->history = history; }

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
  // The worker's word that its rank leaves the run, which goes on without it.
  void set_leaving() { control_->leaving = 1; }
  bool is_leaving() const { return control_->leaving != 0; }
  // The worker's word that all ranks of its epoch have met.
  void set_met() { control_->met = 1; }
  bool has_met() const { return control_->met != 0; }
  // Before a worker starts.
  void clear_flags() { control_->boundary = control_->done = control_->leaving = control_->met = 0; }

 private:
  struct Seal {
    std::atomic<int64_t> serial = 0;  // 0: not sealed; else higher the later
    bool unnamed = true;              // its bytes have no name: the folder has no room for them
    Snapshot snapshot;
  };
  static constexpr uint64_t kFormat = 0x534c5543'00000003;  // of Control
  struct Control {
    std::atomic<uint64_t> format = 0;  // kFormat once it is whole
    std::atomic<uint64_t> history = 0;
    std::atomic<int> boundary = 0;
    std::atomic<int> done = 0;
    std::atomic<int> leaving = 0;
    std::atomic<int> met = 0;
    std::array<Seal, 2> seals;
  };

  static void remove(const std::filesystem::path& file);
  bool take_up(const std::filesystem::path& file);
  void make_named(const std::filesystem::path& file);
  std::filesystem::path slot_path(size_t slot) const;
  int file_of(size_t slot) const;
  size_t older() const;

  Control* control_ = nullptr;  // shared with the workers
  std::filesystem::path name_;  // of the file that holds `control_`; "": none
  transport::Socket lock_;      // that file, locked
  std::string nameless_because_;
  std::array<transport::Socket, 2> unnamed_;
  std::array<transport::Socket, 2> named_;
};

}  // namespace sluice::survive
