// Saves checkpoints: every rank writes its owner slices, rank 0 commits.
//
// A checkpoint location (`root`) is a directory on a file system that all ranks see, or a prefix in a bucket.
// It holds step-N/ and, for models with frozen parameters, shared/ (manifest.h). Order of a save, with
// barriers between the lines:
//   Rank 0      Calls prepare_save: removes half-written checkpoints, makes step-N/.
//   All ranks   Call write_rank_file and keep_shared: durable when they return. Rank 0 gathers the records.
//   Rank 0      Calls commit_save: writes manifest.json (atomic, durable), then removes old checkpoints.
// A process that dies before the manifest is written leaves the earlier checkpoints as they were.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "checkpoint/companions.h"
#include "checkpoint/manifest.h"
#include "storage/location.h"

namespace sluice::checkpoint {

// One bucket's owner slice: `elements` values for each state, in the manifest's type. The moments of a frozen
// bucket are null.
struct OwnerState {
  base::Interval owned;
  const void* master = nullptr;
  const void* exp_avg = nullptr;     // first Adam moment
  const void* exp_avg_sq = nullptr;  // second Adam moment
};

// Decides which checkpoints are kept: the newest, young ones, and perhaps the best.
struct Retention {
  int count = 2;      // number of newest checkpoints kept, at least 1
  int64_t hours = 0;  // also keep those committed less than so many hours ago, by the location's clock
  bool best =
      false;  // also keep the one evaluated at its very step with the lowest measure; the first of equals
};

// Returns the new directory of `step`. If the step has a committed checkpoint (a run went back and came here
// again), it is set aside as step-N.previous until the commit; saved_steps() still finds it. In a bucket,
// where nothing can be renamed, it is removed: such a location is never the only one (background_save.h).
// base::RunError if the location cannot be written.
storage::Location prepare_save(const storage::Location& root, int64_t step);

// Writes tensors "bucket.3.master", "bucket.3.exp_avg" and "bucket.3.exp_avg_sq" for every trained
// bucket of which the rank owns a part. RunError on a full or unwritable disk; nothing of the file is
// left then.
FileRecord write_rank_file(const storage::Location& directory, int rank, TensorType type,
                           std::span<const OwnerState> buckets);

// The record of the shared file that keep_shared() writes: "bucket.3.master" of frozen slices. Hashes all of
// them. Its name is "" if there are none.
FileRecord shared_record(TensorType type, std::span<const OwnerState> buckets);

// Whether an existing shared file is trusted by its length or read to its end first. In a bucket it is never
// read.
enum class Trust { kByLength, kByContent };

// Writes the shared file of these slices, whose record is shared_record's, unless the location has it
// already. Returns whether it was written.
bool keep_shared(const storage::Location& root, const FileRecord& record, TensorType type,
                 std::span<const OwnerState> buckets, Trust trust);

// Writes companions before the commit, on one rank; returns the manifest's list. RunError as above.
std::vector<FileRecord> write_companions(const storage::Location& directory,
                                         std::span<const Companion> companions);

// Commits the checkpoint. Then removes checkpoints of later steps, which the run gave up by going back, those
// of the rest that retention does not keep (the new one stays), and shared files that are no longer used.
// REQUIRES: `manifest.files` lists every rank's record.
void commit_save(const storage::Location& directory, const Manifest& manifest, const Retention& retention);

// Removes checkpoints up to `step` that retention does not keep, and the half-written or half-removed ones of
// a killed rank 0. Later checkpoints stay. Shared files stay if any manifest under `root` refers to them,
// whatever its directory; all of them stay while a manifest cannot be read.
void prune(const storage::Location& root, int64_t step, const Retention& retention);

}  // namespace sluice::checkpoint
