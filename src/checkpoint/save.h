// Saving: every rank writes what it owns, rank 0 commits.
//
// The place of checkpoints (`root`), a directory on a file system that all ranks see or a prefix in a bucket,
// holds step-N/ and, where something of the model is not trained, shared/ (manifest.h). Order of a save, with
// barriers between the lines:
//   rank 0      prepare_save: removes half-written checkpoints, makes step-N/
//   every rank  write_rank_file and keep_shared: durable when they return; ranks gather the records at rank 0
//   rank 0      commit_save: writes manifest.json (atomic, durable), then removes the oldest checkpoints
// Dying anywhere before the manifest leaves the checkpoints from before as they were.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "checkpoint/companions.h"
#include "checkpoint/manifest.h"
#include "storage/location.h"

namespace sluice::checkpoint {

// One bucket's owner slice: `elements` values each, in the manifest's type. Of a bucket that is not trained
// the moments are null.
struct OwnerState {
  base::Interval owned;
  const void* master = nullptr;
  const void* exp_avg = nullptr;     // first Adam moment
  const void* exp_avg_sq = nullptr;  // second Adam moment
};

// Which checkpoints stay: the newest, those that are young, and perhaps the best.
struct Retention {
  int count = 2;      // at least one
  int64_t hours = 0;  // since they were committed, by the place's clock
  bool best =
      false;  // also that whose evaluation at its very step has the lowest measure, the first of equals
};

// Returns the new directory of `step`. A committed checkpoint of the same step (a run that went back and
// came here again) is set aside as step-N.previous, still found by saved_steps(), until the commit. In a
// bucket, where nothing can be renamed, it is removed: such a place is never the only one
// (background_save.h). base::RunError when the place cannot be written.
storage::Location prepare_save(const storage::Location& root, int64_t step);

// Tensors "bucket.3.master", "bucket.3.exp_avg" and "bucket.3.exp_avg_sq" for every bucket that is trained
// and of which the rank owns something. RunError on a full or unwritable disk; nothing of the file is left
// then.
FileRecord write_rank_file(const storage::Location& directory, int rank, TensorType type,
                           std::span<const OwnerState> buckets);

// What keep_shared() would write of these slices: "bucket.3.master" of those that are not trained. Hashes
// them all. Its name is "" when there are none.
FileRecord shared_record(TensorType type, std::span<const OwnerState> buckets);

// Whether what a place holds already under a shared file's name is read to its end before it is relied on. In
// a bucket it never is.
enum class Trust { kByLength, kByContent };

// Writes the shared file of these slices, whose record is shared_record's, unless the place has it. Whether
// it did not.
bool keep_shared(const storage::Location& root, const FileRecord& record, TensorType type,
                 std::span<const OwnerState> buckets, Trust trust);

// One rank's, before the commit: what the manifest lists as companions. RunError as above.
std::vector<FileRecord> write_companions(const storage::Location& directory,
                                         std::span<const Companion> companions);

// Commits; then removes checkpoints of later steps, which belong to a future that was given up by going back,
// what is not to be kept of the rest (the new one stays), and what was shared by those alone.
// REQUIRES: `manifest.files` lists every rank's record.
void commit_save(const storage::Location& directory, const Manifest& manifest, const Retention& retention);

// Removes what is not to be kept of the checkpoints up to `step`, and what is half written or half removed:
// what a rank 0 that was killed around a commit did not come to. Later ones stay. So do shared files to which
// any manifest here refers, in whatever directory it lies, and all of them while one manifest cannot be read.
void prune(const storage::Location& root, int64_t step, const Retention& retention);

}  // namespace sluice::checkpoint
