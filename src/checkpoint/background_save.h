// Writes a checkpoint while the run goes on: each rank does its part on a thread of its own.
//
//   Snapshot  Every rank copies its owner slices; rank 0 calls prepare_save.
//   Write     Every rank calls write_rank_file and, for frozen slices, keep_shared; rank 0 also
//             calls write_companions.
//   Commit    Rank 0 calls commit_save.
// For each mirror the phases from prepare_save on repeat with the same snapshot. A phase begins when all
// ranks have finished the one before. Ranks exchange their SaveStatus, a few integers, whenever they meet
// anyway (training: after each step), so no rank waits for a save. A process that dies at any moment leaves
// what a killed save leaves (save.h): the earlier checkpoints.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/queue.h"
#include "checkpoint/save.h"

namespace sluice::checkpoint {

// A checkpoint location. The first one counts: if a save fails there, it has failed. A mirror that cannot be
// written lacks that checkpoint; the next save tries it again.
struct SaveLocation {
  storage::Location root;
  Retention retention;
};

// The contributions of a rank to a save.
struct SaveInput {
  Manifest manifest;                  // without files and companions
  std::vector<Companion> companions;  // set on rank 0, which writes them
  // Called once, on the save's thread, which no longer uses the run's slices when it returns. The returned
  // data stay unchanged until the save has ended.
  std::function<std::vector<OwnerState>()> snapshot;
};

// The state of a rank's part of a save, exchanged with the other ranks.
struct SaveStatus {
  // The fields of a FileRecord that other ranks don't know.
  struct File {
    int64_t bytes = 0;
    int64_t checksum = 0;
    int64_t header = 0;
  };
  int64_t done = 0;
  int64_t failed = 0;
  File own;     // the rank's own file, once written
  File shared;  // zero bytes: there is none
};

// One rank's half of a save. One thread must call all functions.
class BackgroundSave {
 public:
  struct Options {
    int rank = 0;
    int world_size = 1;
    std::vector<SaveLocation> locations;      // the same on all ranks, at least one
    std::function<void()> require_locations;  // on rank 0, before any change at a location; throws
  };
  enum class Progress : uint8_t { kIdle, kUnderWay, kCommitted, kFailed, kMirrored, kMirrorFailed };

  explicit BackgroundSave(Options options);
  ~BackgroundSave();  // waits for the current phase; leaves the save as a killed process would
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  // REQUIRES: !busy().
  void begin(SaveInput input);
  bool busy() const { return phase_ != Phase::kNone; }
  bool committed() const { return place_ > 0; }  // a mirror may be in progress
  int64_t step() const { return input_.manifest.step; }

  // Returns when this rank's phase in progress is done.
  void wait();
  // As wait(), but returns false as soon as bytes have moved over the network meanwhile.
  bool wait_while_still();

  // The state of this rank's phase. Doesn't wait.
  SaveStatus status() const;
  // The exception that made this rank's phase fail; null: it did not fail.
  std::exception_ptr failure() const;
  // Begins the next phase if all ranks have finished this one. `words` holds all ranks' status() of one
  // exchange, in rank order, so that all ranks return the same value. Each location ends once: the first one
  // with kCommitted or kFailed, which ends the save; a mirror with kMirrored or kMirrorFailed.
  Progress advance(std::span<const SaveStatus> words);
  // Gives up the remaining mirrors; the checkpoint itself is committed. Collective, after wait().
  void drop_mirrors();

  // For reports: the time that this rank's thread has spent on the save, the bytes of all ranks' files, and
  // the bytes of shared files.
  int64_t spent_ns() const;
  int64_t saved_bytes() const { return saved_bytes_; }
  int64_t shared_bytes() const { return shared_bytes_; }

 private:
  enum class Phase : uint8_t { kNone, kSnapshot, kPrepare, kWrite, kCommit };

  void start(Phase phase);
  void work();
  void run(Phase phase);
  void prepare();
  void write();
  FileRecord keep_shared_slices();
  void commit();
  void note_files(std::span<const SaveStatus> words);
  Progress next_place(Progress progress);

  const Options options_;
  SaveInput input_;
  size_t place_ = 0;
  Phase phase_ = Phase::kNone;
  int64_t saved_bytes_ = 0;
  int64_t shared_bytes_ = 0;

  // Used by the save's thread alone.
  std::vector<OwnerState> states_;
  std::optional<FileRecord> shared_;  // computed once: frozen slices never change
  std::vector<char> kept_;            // by location: its shared file was once read to its end, or written

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  bool done_ = true;
  std::exception_ptr failure_;
  FileRecord written_;
  FileRecord written_shared_;
  std::vector<FileRecord> companions_;
  int64_t spent_ns_ = 0;

  base::BoundedQueue<Phase> phases_{1};
  std::thread thread_;
};

}  // namespace sluice::checkpoint
