#include "checkpoint/save.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "checkpoint/safetensors.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using base::RunError;
using base::text;

bool committed(const fs::path& directory) {
  std::error_code ignored;
  return fs::exists(directory / "manifest.json", ignored);
}

void remove_tree(const fs::path& directory) {
  // The manifest goes first: what dies half-removed is half-written, never a checkpoint with holes.
  std::error_code error;
  fs::remove(directory / "manifest.json", error);
  fs::remove_all(directory, error);
  if (error) throw RunError(text("cannot remove old checkpoint ", directory.string(), ": ", error.message()));
}

void rename_directory(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) throw RunError(text("cannot rename ", from.string(), ": ", error.message()));
  base::sync_directory(to.parent_path());
}

// All directories of steps, committed or not.
std::vector<SavedStep> step_directories(const fs::path& root) {
  std::vector<SavedStep> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(root, error)) {
    const std::optional<int64_t> step = step_of_directory(entry.path());
    if (step && entry.is_directory(error)) found.push_back({*step, entry.path()});
  }
  std::sort(found.begin(), found.end(), [](const SavedStep& a, const SavedStep& b) {
    // "step-7.previous" stands before "step-7".
    return std::pair(a.step, !a.directory.has_extension()) < std::pair(b.step, !b.directory.has_extension());
  });
  return found;
}

constexpr const char* kStates[] = {"master", "exp_avg", "exp_avg_sq"};

}  // namespace

std::vector<SavedStep> saved_steps(const fs::path& root) {
  std::vector<SavedStep> saved;
  for (const SavedStep& found : step_directories(root)) {
    if (!committed(found.directory)) continue;
    if (!saved.empty() && saved.back().step == found.step) saved.pop_back();
    saved.push_back(found);
  }
  return saved;
}

std::optional<SavedStep> latest(const fs::path& root) {
  const std::vector<SavedStep> saved = saved_steps(root);
  return saved.empty() ? std::nullopt : std::optional(saved.back());
}

fs::path prepare_save(const fs::path& root, int64_t step) {
  base::make_directories(root);
  for (const SavedStep& found : step_directories(root)) {
    if (!committed(found.directory)) remove_tree(found.directory);
  }
  const fs::path directory = root / text("step-", step);
  if (committed(directory)) {
    const fs::path previous = directory.string() + std::string(kPreviousSuffix);
    if (fs::exists(previous)) remove_tree(previous);
    rename_directory(directory, previous);
  }
  base::make_directories(directory);
  base::sync_directory(root);
  return directory;
}

FileRecord write_rank_file(const fs::path& directory, int rank, TensorType type,
                           std::span<const OwnerState> buckets) {
  FileRecord record{.name = rank_file_name(rank)};
  std::vector<TensorInfo> tensors;
  for (size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    const base::Interval owned = buckets[bucket].owned;
    record.intervals.push_back(owned);
    if (owned.empty()) continue;
    for (const char* state : kStates) {
      tensors.push_back({.name = text("bucket.", bucket, ".", state), .type = type, .shape = {owned.size()}});
    }
  }
  SafetensorsWriter writer(directory / record.name, tensors);
  for (const OwnerState& state : buckets) {
    if (state.owned.empty()) continue;
    for (const void* values : {state.master, state.exp_avg, state.exp_avg_sq}) {
      writer.write(values, state.owned.size() * size_of(type));
    }
  }
  writer.finish();
  try {
    const SafetensorsFile written(directory / record.name);
    record.bytes = written.size_bytes();
    record.checksum = written.checksum();
  } catch (const base::InputError& error) {  // nobody gave this file: the run failed, its input is not wrong
    throw RunError(text("a file that was just written cannot be read back: ", error.what()));
  }
  return record;
}

std::vector<FileRecord> write_companions(const fs::path& directory, std::span<const Companion> companions) {
  std::vector<FileRecord> records;
  if (companions.empty()) return records;
  base::make_directories(directory / kCompanionDirectory);
  for (const Companion& companion : companions) {
    base::write_file_atomically(directory / kCompanionDirectory / companion.name, companion.bytes);
    records.push_back({.name = companion.name,
                       .bytes = static_cast<int64_t>(companion.bytes.size()),
                       .checksum = base::hash_bytes(companion.bytes)});
  }
  return records;
}

void commit_save(const fs::path& directory, const Manifest& manifest, int keep) {
  base::write_json(directory / "manifest.json", to_json(manifest));
  const fs::path root = directory.parent_path();
  const fs::path previous = directory.string() + std::string(kPreviousSuffix);
  if (fs::exists(previous)) remove_tree(previous);
  for (const SavedStep& saved : saved_steps(root)) {
    if (saved.step > manifest.step) remove_tree(saved.directory);  // of a future given up by going back
  }
  prune(root, manifest.step, keep);
}

void prune(const fs::path& root, int64_t step, int keep) {
  std::vector<SavedStep> saved = saved_steps(root);
  std::erase_if(saved, [&](const SavedStep& later) { return later.step > step; });
  for (size_t old = 0; old + static_cast<size_t>(std::max(keep, 1)) < saved.size(); ++old) {
    remove_tree(saved[old].directory);
  }
}

}  // namespace sluice::checkpoint
