#include "checkpoint/background_save.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "link/layout.h"

namespace sluice::checkpoint {

BackgroundSave::BackgroundSave(Options options) : options_(std::move(options)), thread_([this] { work(); }) {}

BackgroundSave::~BackgroundSave() {
  parts_.close();
  thread_.join();
}

void BackgroundSave::begin(SaveInput input) {
  SLUICE_ASSERT(!busy(), "a save begins before the last one has ended");
  input_ = std::move(input);
  place_ = 0;
  {
    const std::lock_guard lock(mutex_);
    copied_ = false;
    spent_ns_ = 0;
  }
  start(Part::kSnapshot);
}

void BackgroundSave::start(Part part) {
  {
    const std::lock_guard lock(mutex_);
    done_ = false;
    failure_ = nullptr;
  }
  part_ = part;
  parts_.push(part);
}

void BackgroundSave::work() {
  while (const std::optional<Part> part = parts_.pop()) {
    const auto begin = std::chrono::steady_clock::now();
    std::exception_ptr failure;
    try {
      run(*part);
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    spent_ns_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count();
    failure_ = failure;
    copied_ = true;
    done_ = true;
    changed_.notify_all();
  }
}

void BackgroundSave::run(Part part) {
  switch (part) {
    case Part::kNone: return;
    case Part::kSnapshot:
      states_ = input_.snapshot();
      {
        const std::lock_guard lock(mutex_);
        copied_ = true;
        changed_.notify_all();
      }
      return prepare();
    case Part::kPrepare: return prepare();
    case Part::kWrite: return write();
    case Part::kCommit: return commit();
  }
}

void BackgroundSave::prepare() {
  if (options_.rank != 0) return;
  if (options_.require_places) options_.require_places();
  prepare_save(options_.places[place_].root, step());
}

void BackgroundSave::write() {
  const std::filesystem::path directory = step_directory(options_.places[place_].root, step());
  FileRecord written = write_rank_file(directory, options_.rank, input_.manifest.type, states_);
  std::vector<FileRecord> companions = write_companions(directory, input_.companions);
  const std::lock_guard lock(mutex_);
  written_ = std::move(written);
  companions_ = std::move(companions);
}

void BackgroundSave::commit() {
  if (options_.rank != 0) return;
  if (options_.require_places) options_.require_places();
  const SavePlace& place = options_.places[place_];
  commit_save(step_directory(place.root, step()), input_.manifest, place.retention);
}

void BackgroundSave::wait_for_snapshot() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return copied_; });
}

void BackgroundSave::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_; });
}

SaveWord BackgroundSave::word() const {
  const std::lock_guard lock(mutex_);
  return {.done = done_ ? 1 : 0,
          .failed = done_ && failure_ ? 1 : 0,
          .bytes = done_ ? written_.bytes : 0,
          .checksum = done_ ? static_cast<int64_t>(written_.checksum) : 0,
          .header = done_ ? static_cast<int64_t>(written_.header.value_or(0)) : 0};
}

std::exception_ptr BackgroundSave::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

int64_t BackgroundSave::spent_ns() const {
  const std::lock_guard lock(mutex_);
  return spent_ns_;
}

// All ranks' records, as they have told them; rank 0 commits them.
void BackgroundSave::note_files(std::span<const SaveWord> words) {
  const model::ParameterTable table = model::parameter_table(input_.manifest.shape);
  const link::OwnerLayout owners{options_.world_size};
  input_.manifest.world_size = options_.world_size;
  input_.manifest.files.clear();
  saved_bytes_ = 0;
  for (int rank = 0; rank < options_.world_size; ++rank) {
    const SaveWord& word = words[static_cast<size_t>(rank)];
    FileRecord& file =
        input_.manifest.files.emplace_back(FileRecord{.name = rank_file_name(rank),
                                                      .bytes = word.bytes,
                                                      .checksum = static_cast<uint64_t>(word.checksum),
                                                      .header = static_cast<uint64_t>(word.header)});
    for (const model::Bucket& bucket : table.buckets) file.intervals.push_back(owners.owned(bucket, rank));
    saved_bytes_ += word.bytes;
  }
  const std::lock_guard lock(mutex_);
  input_.manifest.companions = companions_;
}

// Behind the end of a place, good or bad.
BackgroundSave::Progress BackgroundSave::next_place(Progress progress) {
  ++place_;
  if (place_ < options_.places.size()) {
    start(Part::kPrepare);
  } else {
    part_ = Part::kNone;
  }
  return progress;
}

BackgroundSave::Progress BackgroundSave::advance(std::span<const SaveWord> words) {
  if (!busy()) return Progress::kIdle;
  const bool all_done = std::ranges::all_of(words, [](const SaveWord& word) { return word.done != 0; });
  if (!all_done) return Progress::kUnderWay;
  if (std::ranges::any_of(words, [](const SaveWord& word) { return word.failed != 0; })) {
    if (committed()) return next_place(Progress::kMirrorFailed);
    part_ = Part::kNone;
    return Progress::kFailed;
  }
  switch (part_) {
    case Part::kNone: break;
    case Part::kSnapshot:
    case Part::kPrepare: start(Part::kWrite); break;
    case Part::kWrite:
      note_files(words);
      start(Part::kCommit);
      break;
    case Part::kCommit: return next_place(committed() ? Progress::kMirrored : Progress::kCommitted);
  }
  return Progress::kUnderWay;
}

void BackgroundSave::drop_mirrors() {
  SLUICE_ASSERT(committed(), "a save is dropped that is not committed");
  part_ = Part::kNone;
}

}  // namespace sluice::checkpoint
