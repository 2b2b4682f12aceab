#include "checkpoint/find.h"

#include <algorithm>
#include <functional>
#include <iterator>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace sluice::checkpoint {

using base::text;
using storage::Location;

bool committed(const Location& directory) { return (directory / kManifestName).is_file(); }

std::vector<SavedStep> step_directories(const Location& root) {
  std::vector<SavedStep> found;
  for (const storage::Entry& entry : root.entries()) {
    const std::optional<int64_t> step = step_of_directory(entry.name);
    if (step && entry.is_directory) found.push_back({*step, root / entry.name});
  }
  std::ranges::sort(found, {}, [](const SavedStep& saved) {
    // "step-7.previous" stands before "step-7".
    return std::pair(saved.step, !saved.directory.filename().ends_with(kPreviousSuffix));
  });
  return found;
}

std::vector<SavedStep> saved_steps(const Location& root) {
  std::vector<SavedStep> saved;
  for (const SavedStep& found : step_directories(root)) {
    if (!committed(found.directory)) continue;
    if (!saved.empty() && saved.back().step == found.step) saved.pop_back();
    saved.push_back(found);
  }
  return saved;
}

std::optional<SavedStep> latest(const Location& root) {
  const std::vector<SavedStep> saved = saved_steps(root);
  return saved.empty() ? std::nullopt : std::optional(saved.back());
}

Location step_directory(const Location& root, int64_t step) { return root / text("step-", step); }

namespace {

std::vector<Location> newest_first(std::vector<SavedStep> found) {
  std::ranges::stable_sort(found, std::greater{}, &SavedStep::step);
  std::vector<Location> directories;
  for (const SavedStep& saved : found) directories.push_back(saved.directory);
  return directories;
}

// Warns of directories without a manifest, which a run leaves if it is killed while it saves.
void tell_of_unfinished(const Location& root, const std::vector<SavedStep>& committed_steps) {
  const int64_t newest = committed_steps.empty() ? -1 : committed_steps.back().step;
  for (const SavedStep& found : step_directories(root)) {
    if (found.step > newest && !committed(found.directory))
      base::log_warning(
          passed_over(found.directory, text("it has no ", kManifestName, ", so its saving never ended")));
  }
}

std::vector<SavedStep> saved_steps_telling(const Location& root) {
  std::vector<SavedStep> saved = saved_steps(root);
  tell_of_unfinished(root, saved);
  return saved;
}

}  // namespace

std::vector<Location> all_checkpoints(std::span<const Location> roots) {
  std::vector<SavedStep> found;
  for (const Location& root : roots) {
    try {
      std::ranges::copy(saved_steps_telling(root), std::back_inserter(found));
    } catch (const base::Error& error) {
      if (found.empty()) throw;  // do not restart from step 0 because checkpoints are out of reach
      base::log_warning(text("checkpoints in ", root.string(), " are passed over: ", error.what()));
    }
  }
  return newest_first(std::move(found));
}

std::vector<Location> find_checkpoints(const Location& resume) {
  if ((resume / "manifest.json").is_file()) return {resume};
  for (const Location& candidate : {resume, resume / "checkpoints"}) {
    if (auto found = newest_first(saved_steps_telling(candidate)); !found.empty()) return found;
  }
  throw base::InputError(text("[checkpoint] ", resume.string(),
                              " holds no committed checkpoint: name a step-N directory with a manifest.json, "
                              "or a run directory"));
}

std::unique_ptr<Checkpoint> open_newest_whole(const Location& location) {
  const std::vector<Location> directories = find_checkpoints(location);
  for (size_t index = 0;; ++index) {
    try {
      auto checkpoint = std::make_unique<Checkpoint>(directories[index]);
      location.is_path() ? checkpoint->verify() : checkpoint->look_through();
      return checkpoint;
    } catch (const DamagedCheckpoint& damage) {
      if (index + 1 == directories.size()) throw;
      base::log_warning(passed_over(directories[index], damage.what()));
    }
  }
}

std::string passed_over(const Location& directory, const std::string& fault) {
  return text(directory.string(), " is passed over: ", fault);
}

}  // namespace sluice::checkpoint
