// Finds checkpoints: those at a location, and those that a user means.
//
// A checkpoint location (`root`) is a directory, or a prefix in a bucket, with one directory step-N for each
// checkpoint. A checkpoint is committed once its manifest is there (save.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/load.h"
#include "storage/location.h"

namespace sluice::checkpoint {

inline constexpr const char* kManifestName = "manifest.json";

// A committed checkpoint.
struct SavedStep {
  int64_t step = 0;
  storage::Location directory;
};

// The committed checkpoints under `root`, ascending by step; none when `root` does not exist.
std::vector<SavedStep> saved_steps(const storage::Location& root);
// The newest committed checkpoint under `root`.
std::optional<SavedStep> latest(const storage::Location& root);

// The directory of a step.
storage::Location step_directory(const storage::Location& root, int64_t step);

// Whether a step's directory has its manifest.
bool committed(const storage::Location& directory);
// All directories of steps, committed or not; "step-7.previous" stands before "step-7".
std::vector<SavedStep> step_directories(const storage::Location& root);

// The checkpoints that `resume` may mean, the newest first: a directory with a manifest, or all step-N
// directories in it. Logs warnings about newer ones whose save never ended. InputError if there is no
// committed checkpoint.
std::vector<storage::Location> find_checkpoints(const storage::Location& resume);

// The checkpoints under all roots, the newest first, those of one step in the roots' order; perhaps none. A
// root that cannot be read is passed over with a warning if an earlier root had a checkpoint; otherwise
// RunError or InputError.
std::vector<storage::Location> all_checkpoints(std::span<const storage::Location> roots);

// The newest undamaged checkpoint that `location` means: all files are checked, in a bucket only looked
// through. Warns of passed-over ones. DamagedCheckpoint if all are damaged; InputError as find_checkpoints.
std::unique_ptr<Checkpoint> open_newest_whole(const storage::Location& location);

// "runs/a/checkpoints/step-20 is passed over: " and the fault.
std::string passed_over(const storage::Location& directory, const std::string& fault);

}  // namespace sluice::checkpoint
