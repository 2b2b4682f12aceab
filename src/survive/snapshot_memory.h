// Memory that outlives a rank's workers: its supervisor creates it, and the workers that it forks in turn use
// it. It has two slots for snapshots. A worker never writes the slot with the newest sealed snapshot, so it
// may die at any moment.
//
// A slot has three parts: the rank's own owner slices, those of the rank that it is the buddy of, and the run
// state as text. A sealed slot is not changed until it is opened again.
//
// Some launchers end all ranks when one is lost and restart them. For these the memory has a name: files in a
// folder in memory (/dev/shm), which the new supervisor finds. A supervisor and its workers hold a lock
// (flock) on the first of these files. Unlocked files belong to a dead supervisor.
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

// The contents of a slot; see membership::HeldSnapshot.
struct Snapshot {
  int64_t step = 0;
  int64_t membership = 0;
  int32_t ranks = 0;
  int32_t rank = 0;
  int32_t copied_rank = -1;  // the rank that this one is the buddy of; -1: none
  uint64_t own_hash = 0;
  uint64_t copy_hash = 0;
  uint64_t text_hash = 0;
  int64_t own_bytes = 0;
  int64_t copy_bytes = 0;
  int64_t text_bytes = 0;
  int64_t bytes() const { return own_bytes + copy_bytes + text_bytes; }
};

// The place of named memory. Two runs are the same if their `identity` is equal.
struct NamedMemory {
  std::filesystem::path folder = "/dev/shm";
  std::string identity;    // a few letters and digits: part of the files' names
  bool takes_up = false;   // use a dead supervisor's memory of this run; false: remove it
  int64_t stale_s = 3600;  // other runs' memory of this user without a snapshot for so long is removed
};

class SnapshotMemory {
 public:
  // Unnamed memory: ends with the process. RunError if the system gives no memory.
  SnapshotMemory();
  // The newest memory that a dead supervisor left, or new files. They remain until remove_name().
  explicit SnapshotMemory(const NamedMemory& named);
  ~SnapshotMemory();
  SnapshotMemory(const SnapshotMemory&) = delete;
  SnapshotMemory& operator=(const SnapshotMemory&) = delete;

  // The sealed snapshots. May be called while a worker writes.
  std::vector<membership::HeldSnapshot> snapshots() const;

  // Whether the memory has the requested name; nameless_because() says why not.
  bool has_name() const { return !name_.empty(); }
  const std::string& nameless_because() const { return nameless_because_; }
  // Whether the folder had no room for the snapshot that was sealed last: that one ends with this process.
  bool lacks_room() const;

  // Removes the files, so that no later supervisor finds this memory: the run has ended.
  void remove_name();
  // Removes the files of all dead supervisors of the run.
  static void remove_left(const NamedMemory& named);
  // Identifies a chain of restarts, each continued from the snapshots of the one before. Only within one
  // history do equal steps and memberships mean the same moment. 0: none yet.
  uint64_t history() const { return control_->history; }
  void set_history(uint64_t history) { control_->history = history; }

  // A mapping of a slot's bytes, valid during its lifetime.
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

  // Drops all snapshots except that of the step and membership that the next membership starts from.
  // Snapshots that are sealed next do not replace it.
  void keep_only(int64_t step, int64_t epoch);

  // The older slot, unsealed, with room for `snapshot`, whose hashes are not known yet. RunError if memory
  // runs out.
  View open(const Snapshot& snapshot);
  // Marks the opened slot as complete, with all of `snapshot`'s figures.
  void seal(const Snapshot& snapshot);
  // The sealed snapshot of that step and membership.
  std::optional<View> find(int64_t step, int64_t epoch) const;

  // Flags. `boundary`: the supervisor asks the worker to end after its current step. `done`: the worker has
  // nothing left to do but exit.
  void ask_for_boundary() { control_->boundary = 1; }
  bool boundary_is_asked() const { return control_->boundary != 0; }
  void set_done() { control_->done = 1; }
  bool is_done() const { return control_->done != 0; }
  // Set by the worker: its rank leaves the run, which continues without it.
  void set_leaving() { control_->leaving = 1; }
  bool is_leaving() const { return control_->leaving != 0; }
  // Set by the worker: all ranks of its membership have met.
  void set_met() { control_->met = 1; }
  bool has_met() const { return control_->met != 0; }
  // Called before a worker starts.
  void clear_flags() { control_->boundary = control_->done = control_->leaving = control_->met = 0; }

 private:
  struct Seal {
    std::atomic<int64_t> serial = 0;  // 0: not sealed; else the newer the higher
    bool unnamed = true;              // its bytes are in unnamed memory, because the folder has no room
    Snapshot snapshot;
  };
  static constexpr uint64_t kFormat = 0x534c5543'00000003;  // layout version of Control
  struct Control {
    std::atomic<uint64_t> format = 0;  // kFormat once the memory is complete
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
  std::filesystem::path name_;  // the file that holds `control_`; "": none
  transport::Socket lock_;      // the file `name_`, locked
  std::string nameless_because_;
  std::array<transport::Socket, 2> unnamed_;
  std::array<transport::Socket, 2> named_;
};

}  // namespace sluice::survive
