#include "checkpoint/save.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <string>

#include "base/error.h"
#include "base/hash.h"
#include "base/json_fields.h"
#include "base/stream_hash.h"
#include "base/text.h"
#include "checkpoint/blocks.h"
#include "checkpoint/carried.h"
#include "checkpoint/find.h"
#include "checkpoint/safetensors.h"

namespace sluice::checkpoint {
namespace {

using base::text;
using storage::Location;

// The manifest goes first: if removal is interrupted, the rest is half-written, not a checkpoint with holes.
void remove_checkpoint(const Location& directory) {
  (directory / kManifestName).remove();
  directory.remove_tree();
}

// Whether a checkpoint was committed less than `hours` ago, or at an unknown time.
bool younger(const Location& directory, int64_t hours) {
  if (hours <= 0) return false;
  const std::optional<storage::FileStatus> manifest = (directory / kManifestName).status();
  return !manifest || std::chrono::system_clock::now() - manifest->written < std::chrono::hours(hours);
}

constexpr struct {
  const char* name;
  const void* OwnerState::*values;
} kStates[] = {{"master", &OwnerState::master},
               {"exp_avg", &OwnerState::exp_avg},
               {"exp_avg_sq", &OwnerState::exp_avg_sq}};

// The part of a rank's slices that goes into one file.
struct FileContent {
  enum class Which { kTrained, kShared };

  FileContent(TensorType type, std::span<const OwnerState> buckets, Which part) : type(type) {
    for (size_t bucket = 0; bucket < buckets.size(); ++bucket) {
      const OwnerState& slice = buckets[bucket];
      const bool wanted = (slice.exp_avg != nullptr) == (part == Which::kTrained);
      intervals.push_back(wanted ? slice.owned : base::Interval{});
      if (!wanted || slice.owned.empty()) continue;
      for (const auto& [state, values] : kStates) {
        if (slice.*values == nullptr) continue;
        tensors.push_back(
            {.name = text("bucket.", bucket, ".", state), .type = type, .shape = {slice.owned.size()}});
        bytes.push_back(slice.*values);
      }
    }
  }

  template <typename Take>
  void pass(const Take& take) const {
    for (size_t i = 0; i < tensors.size(); ++i) take(bytes[i], tensors[i].elements() * size_of(type));
  }

  std::map<std::string, std::string> metadata() const {
    BlockHasher blocks;
    pass([&](const void* values, int64_t size) { blocks.add(values, size); });
    return blocks.metadata();
  }

  // Writes the file; returns its record without a name.
  FileRecord write(const Location& location) const {
    SafetensorsWriter writer(location, tensors, metadata());
    pass([&](const void* values, int64_t size) { writer.write(values, size); });
    writer.finish();
    return {.bytes = writer.size_bytes(),
            .checksum = writer.checksum(),
            .header = writer.header_checksum(),
            .intervals = intervals};
  }

  TensorType type;
  std::vector<base::Interval> intervals;  // by bucket
  std::vector<TensorInfo> tensors;
  std::vector<const void*> bytes;  // the tensors' values
};

// Names of shared files in all manifests under `root`. None if a manifest cannot be read.
std::optional<std::set<std::string>> shared_names(const Location& root) {
  std::set<std::string> names;
  for (const storage::Entry& entry : root.entries()) {
    if (!entry.is_directory || !committed(root / entry.name)) continue;
    try {
      for (const FileRecord& file : read_manifest(root / entry.name).shared) names.insert(file.name);
    } catch (const base::InputError&) {
      return std::nullopt;
    }
  }
  return names;
}

// Removes shared files that no checkpoint refers to any more.
void sweep_shared(const Location& root) {
  const std::vector<storage::Entry> files = (root / kSharedDirectory).entries();
  if (files.empty()) return;
  const std::optional<std::set<std::string>> wanted = shared_names(root);
  for (const storage::Entry& file : files) {
    const bool whole = file.name.ends_with(".safetensors");  // not a partial file
    if (wanted && whole && !wanted->contains(file.name)) (root / kSharedDirectory / file.name).remove();
  }
}

// Whether the file at `location` is the shared file of this record.
bool is_whole(const Location& location, const FileRecord& record, Trust trust) {
  const std::optional<storage::FileStatus> status = location.status();
  if (!status || status->bytes != record.bytes) return false;
  if (trust == Trust::kByLength || !location.is_path()) return true;
  try {
    const SafetensorsFile file(location);
    if (file.header_checksum() != record.header) return false;
    const base::Interval all{0, file.data_bytes()};
    CheckedBlocks(file).require({&all, 1});
    return true;
  } catch (const base::InputError&) {
    return false;
  }
}

// Removes half-written and half-removed checkpoints of a killed rank 0, and directories set aside for a step
// that it committed after all.
void remove_unfinished(const Location& root) {
  for (const SavedStep& found : step_directories(root)) {
    const bool set_aside = found.directory.filename().ends_with(kPreviousSuffix);
    if (!committed(found.directory) || (set_aside && committed(step_directory(root, found.step))))
      remove_checkpoint(found.directory);
  }
}

}  // namespace

Location prepare_save(const Location& root, int64_t step) {
  root.make_directory();
  remove_unfinished(root);
  const Location directory = step_directory(root, step);
  if (committed(directory) && !directory.rename(directory.with_suffix(kPreviousSuffix)))
    remove_checkpoint(directory);
  directory.make_directory();
  return directory;
}

FileRecord write_rank_file(const Location& directory, int rank, TensorType type,
                           std::span<const OwnerState> buckets) {
  const std::string name = rank_file_name(rank);
  FileRecord record = FileContent(type, buckets, FileContent::Which::kTrained).write(directory / name);
  record.name = name;
  return record;
}

FileRecord shared_record(TensorType type, std::span<const OwnerState> buckets) {
  const FileContent content(type, buckets, FileContent::Which::kShared);
  if (content.tensors.empty()) return {};
  const std::string header = safetensors_header(content.tensors, content.metadata());
  base::StreamHash whole;
  int64_t size = 0;
  const auto add = [&](const void* bytes, int64_t count) {
    whole.add(bytes, static_cast<size_t>(count));
    size += count;
  };
  add(header.data(), static_cast<int64_t>(header.size()));
  content.pass(add);
  const uint64_t checksum = base::hash_bytes(header);
  return {.name = shared_file_name(checksum),
          .bytes = size,
          .checksum = whole.value(),
          .header = checksum,
          .intervals = content.intervals};
}

bool keep_shared(const Location& root, const FileRecord& record, TensorType type,
                 std::span<const OwnerState> buckets, Trust trust) {
  const Location directory = root / kSharedDirectory;
  if (is_whole(directory / record.name, record, trust)) return false;
  directory.make_directory();
  FileContent(type, buckets, FileContent::Which::kShared).write(directory / record.name);
  return true;
}

std::vector<FileRecord> write_companions(const Location& directory, std::span<const Companion> companions) {
  std::vector<FileRecord> records;
  for (const Companion& companion : companions) {
    const WrittenFile written = write_companion(companion, directory / kCompanionDirectory);
    records.push_back({.name = companion.name, .bytes = written.bytes, .checksum = written.checksum});
  }
  return records;
}

void commit_save(const Location& directory, const Manifest& manifest, const Retention& retention) {
  (directory / kManifestName).write(base::json_text(to_json(manifest), 2) + "\n");
  const Location root = directory.parent();
  for (const SavedStep& saved : saved_steps(root)) {
    if (saved.step > manifest.step) remove_checkpoint(saved.directory);  // given up by going back
  }
  prune(root, manifest.step, retention);
}

namespace {

// The step with the lowest measure; none if no step was evaluated. Manifests that cannot be read are passed
// over, as they are no reason to fail a save.
std::optional<int64_t> best_step(const std::vector<SavedStep>& saved) {
  std::optional<double> lowest;
  std::optional<int64_t> best;
  for (const SavedStep& each : saved) {
    std::optional<double> measure;
    try {
      measure = measure_at_step(read_manifest(each.directory));
    } catch (const base::Error&) {
      continue;
    }
    if (!measure || (lowest && *measure >= *lowest)) continue;
    lowest = measure;
    best = each.step;
  }
  return best;
}

}  // namespace

void prune(const Location& root, int64_t step, const Retention& retention) {
  remove_unfinished(root);
  std::vector<SavedStep> saved = saved_steps(root);
  std::erase_if(saved, [&](const SavedStep& later) { return later.step > step; });
  const std::optional<int64_t> best = retention.best ? best_step(saved) : std::nullopt;
  for (size_t old = 0; old + static_cast<size_t>(std::max(retention.count, 1)) < saved.size(); ++old) {
    if (saved[old].step == best || younger(saved[old].directory, retention.hours)) continue;
    remove_checkpoint(saved[old].directory);
  }
  sweep_shared(root);
}

}  // namespace sluice::checkpoint
