// Finding checkpoints: which ones a place holds, and which of them a user means.
//
// A place (`root`) is a directory, or a prefix in a bucket, with a directory step-N for each. One is
// committed once its manifest is there (save.h).
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
// The newest of them.
std::optional<SavedStep> latest(const storage::Location& root);

// Where a step lies.
storage::Location step_directory(const storage::Location& root, int64_t step);

// Whether a directory of a step has its manifest.
bool committed(const storage::Location& directory);
// All directories of steps, committed or not; "step-7.previous" stands before "step-7".
std::vector<SavedStep> step_directories(const storage::Location& root);

// The checkpoints that `resume` may mean, the newest first: a directory with a manifest, or those in a
// directory that holds step-N directories; newer ones whose saving never ended are warned of. InputError when
// there is none in it.
std::vector<storage::Location> find_checkpoints(const storage::Location& resume);

// Those under the roots, the newest first, of one step in the roots' order; perhaps none. A root but the
// first that cannot be looked at is passed over with a warning, if others have one: RunError or InputError
// otherwise.
std::vector<storage::Location> all_checkpoints(std::span<const storage::Location> roots);

// The newest whole checkpoint that `location` means, all of its files checked, or in a bucket looked through;
// warns of those passed over. DamagedCheckpoint when there is no whole one, InputError as find_checkpoints.
std::unique_ptr<Checkpoint> open_newest_whole(const storage::Location& location);

// "runs/a/checkpoints/step-20 is passed over: ", and why.
std::string passed_over(const storage::Location& directory, const std::string& fault);

}  // namespace sluice::checkpoint
