// Saving: every rank writes what it owns, rank 0 commits.
//
// The directory of checkpoints (`root`) holds step-N/, on a file system that all ranks see. Order of a save,
// with barriers between the lines:
//   rank 0      prepare_save: removes half-written directories, makes step-N/
//   every rank  write_rank_file: durable when it returns; ranks gather the records at rank 0
//   rank 0      commit_save: writes manifest.json (atomic, durable), then removes the oldest checkpoints
// Dying anywhere before the manifest leaves the checkpoints from before as they were.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/companions.h"
#include "checkpoint/manifest.h"

namespace sluice::checkpoint {

// One bucket's owner slice: `elements` values each, in the manifest's type. Of a bucket that is not trained
// the moments are null.
struct OwnerState {
  base::Interval owned;
  const void* master = nullptr;
  const void* exp_avg = nullptr;     // first Adam moment
  const void* exp_avg_sq = nullptr;  // second Adam moment
};

// A committed checkpoint.
struct SavedStep {
  int64_t step = 0;
  std::filesystem::path directory;
};

// The committed checkpoints under `root`, ascending by step; none when `root` does not exist.
std::vector<SavedStep> saved_steps(const std::filesystem::path& root);
// The newest of them.
std::optional<SavedStep> latest(const std::filesystem::path& root);

// Which checkpoints stay: the newest, and those that are young.
struct Retention {
  int count = 2;      // at least one
  int64_t hours = 0;  // since they were committed, by the file system's clock
};

// Where prepare_save puts a step.
std::filesystem::path step_directory(const std::filesystem::path& root, int64_t step);

// Returns the new directory of `step`. A committed checkpoint of the same step (a run that went back and
// came here again) is set aside as step-N.previous, still found by saved_steps(), until the commit.
// base::RunError when the place cannot be written.
std::filesystem::path prepare_save(const std::filesystem::path& root, int64_t step);

// Tensors "bucket.3.master" and, where there are moments, "bucket.3.exp_avg" and "bucket.3.exp_avg_sq" for
// every bucket of which the rank owns something. RunError on a full or unwritable disk; nothing of the file
// is left then.
FileRecord write_rank_file(const std::filesystem::path& directory, int rank, TensorType type,
                           std::span<const OwnerState> buckets);

// One rank's, before the commit: what the manifest lists as companions. RunError as above.
std::vector<FileRecord> write_companions(const std::filesystem::path& directory,
                                         std::span<const Companion> companions);

// Commits; then removes checkpoints of later steps, which belong to a future that was given up by going back,
// and what is not to be kept of the rest (the new one stays).
// REQUIRES: `manifest.files` lists every rank's record.
void commit_save(const std::filesystem::path& directory, const Manifest& manifest,
                 const Retention& retention);

// Removes what is not to be kept of the checkpoints up to `step`: what a rank 0 that was killed behind a
// commit did not come to. Later ones stay.
void prune(const std::filesystem::path& root, int64_t step, const Retention& retention);

}  // namespace sluice::checkpoint
