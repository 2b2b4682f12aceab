// A checkpoint written while its run goes on: each rank does its part on a thread of its own.
//
//   snapshot  every rank copies its owner slices; rank 0 calls prepare_save
//   write     every rank calls write_rank_file and, of what is not trained, keep_shared; rank 0 also
//   write_companions commit    rank 0 calls commit_save
//
// and again, from the same snapshot, for each further place. A part begins when all ranks are done with the
// one before. They tell each other when they meet in any case (training: behind each step), by words of a few
// integers, and nobody waits for a save. What dies at any moment leaves what a killed save leaves (save.h):
// the checkpoints from before.
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

// Where checkpoints go. The first place counts: a save that fails there has failed. A further one that cannot
// be written lacks that checkpoint, and is tried again with the next.
struct SaveLocation {
  storage::Location root;
  Retention retention;
};

// What a rank brings into a save.
struct SaveInput {
  Manifest manifest;                  // but for files and companions
  std::vector<Companion> companions;  // rank 0's, who writes them
  // Called once, on the save's thread, which is done with the slices when it returns. What it returns stays
  // as it is until the save has ended.
  std::function<std::vector<OwnerState>()> snapshot;
};

// What a rank tells the others of its part.
struct SaveStatus {
  // What the others don't know of a FileRecord.
  struct File {
    int64_t bytes = 0;
    int64_t checksum = 0;
    int64_t header = 0;
  };
  int64_t done = 0;
  int64_t failed = 0;
  File own;     // once written
  File shared;  // no bytes: it has none
};

// One rank's half. All functions are the calling thread's alone.
class BackgroundSave {
 public:
  struct Options {
    int rank = 0;
    int world_size = 1;
    std::vector<SaveLocation> locations;      // the same on all ranks, at least one
    std::function<void()> require_locations;  // on rank 0, before it changes anything there; throws
  };
  enum class Progress : uint8_t { kIdle, kUnderWay, kCommitted, kFailed, kMirrored, kMirrorFailed };

  explicit BackgroundSave(Options options);
  ~BackgroundSave();  // waits for the part under way, and leaves the save as if the process had been killed
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  // REQUIRES: !busy().
  void begin(SaveInput input);
  bool busy() const { return phase_ != Phase::kNone; }
  bool committed() const { return place_ > 0; }  // what is under way is a further place
  int64_t step() const { return input_.manifest.step; }

  // Returns when this rank's part under way is done.
  void wait();
  // As wait(), or false as soon as something has come or gone over the network meanwhile.
  bool wait_while_still();

  // How far this rank is. Doesn't wait.
  SaveStatus status() const;
  // Why its part failed, if it did.
  std::exception_ptr failure() const;
  // Begins the next part if all are done with this one. `words` of all ranks, rank by rank, from one
  // exchange: so that it returns the same on all of them. kCommitted and kMirrored each once a place.
  // kFailed: the save is over. kMirrorFailed: so is that place.
  Progress advance(std::span<const SaveStatus> words);
  // Gives up further places; the checkpoint itself is committed. Collective, behind wait().
  void drop_mirrors();

  // Time that this rank's thread has spent on the save, bytes of all ranks' files, and of those that they
  // share with earlier checkpoints, for people.
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

  // The save thread's.
  std::vector<OwnerState> states_;
  std::optional<FileRecord> shared_;  // for good: what is not trained stays as it is
  std::vector<char> kept_;            // places whose shared file was once read to its end, or written

  mutable std::mutex mutex_;  // guards what follows
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
