#include "checkpoint/save.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "checkpoint/blocks.h"
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

// Whether a checkpoint was committed less than `hours` ago; so is one whose age cannot be told.
bool younger(const fs::path& directory, int64_t hours) {
  std::error_code error;
  const fs::file_time_type committed_at = fs::last_write_time(directory / "manifest.json", error);
  return hours > 0 && (error || fs::file_time_type::clock::now() - committed_at < std::chrono::hours(hours));
}

constexpr struct {
  const char* name;
  const void* OwnerState::*values;
} kStates[] = {{"master", &OwnerState::master},
               {"exp_avg", &OwnerState::exp_avg},
               {"exp_avg_sq", &OwnerState::exp_avg_sq}};

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

fs::path step_directory(const fs::path& root, int64_t step) { return root / text("step-", step); }

fs::path prepare_save(const fs::path& root, int64_t step) {
  base::make_directories(root);
  for (const SavedStep& found : step_directories(root)) {
    if (!committed(found.directory)) remove_tree(found.directory);
  }
  const fs::path directory = step_directory(root, step);
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
    for (const auto& [state, values] : kStates) {
      if (buckets[bucket].*values == nullptr) continue;
      tensors.push_back({.name = text("bucket.", bucket, ".", state), .type = type, .shape = {owned.size()}});
    }
  }
  const auto pass_values = [&](auto&& take) {
    for (const OwnerState& state : buckets) {
      if (state.owned.empty()) continue;
      for (const auto& [name, values] : kStates) {
        if (state.*values != nullptr) take(state.*values, state.owned.size() * size_of(type));
      }
    }
  };
  BlockHasher blocks;
  pass_values([&](const void* values, int64_t bytes) { blocks.add(values, bytes); });
  SafetensorsWriter writer(directory / record.name, tensors, blocks.metadata());
  pass_values([&](const void* values, int64_t bytes) { writer.write(values, bytes); });
  writer.finish();
  record.bytes = writer.size_bytes();
  record.checksum = writer.checksum();
  record.header = writer.header_checksum();
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

void commit_save(const fs::path& directory, const Manifest& manifest, const Retention& retention) {
  base::write_json(directory / "manifest.json", to_json(manifest));
  const fs::path root = directory.parent_path();
  const fs::path previous = directory.string() + std::string(kPreviousSuffix);
  if (fs::exists(previous)) remove_tree(previous);
  for (const SavedStep& saved : saved_steps(root)) {
    if (saved.step > manifest.step) remove_tree(saved.directory);  // of a future given up by going back
  }
  prune(root, manifest.step, retention);
}

void prune(const fs::path& root, int64_t step, const Retention& retention) {
  std::vector<SavedStep> saved = saved_steps(root);
  std::erase_if(saved, [&](const SavedStep& later) { return later.step > step; });
  for (size_t old = 0; old + static_cast<size_t>(std::max(retention.count, 1)) < saved.size(); ++old) {
    if (!younger(saved[old].directory, retention.hours)) remove_tree(saved[old].directory);
  }
}

}  // namespace sluice::checkpoint
