#include "checkpoint/background_save.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "checkpoint/find.h"
#include "link/layout.h"

namespace sluice::checkpoint {

BackgroundSave::BackgroundSave(Options options)
    : options_(std::move(options)), kept_(options_.locations.size(), 0), thread_([this] { work(); }) {}

BackgroundSave::~BackgroundSave() {
  phases_.close();
  thread_.join();
}

void BackgroundSave::begin(SaveInput input) {
  SLUICE_ASSERT(!busy(), "a save begins before the last one has ended");
  input_ = std::move(input);
  place_ = 0;
  {
    const std::lock_guard lock(mutex_);
    spent_ns_ = 0;
  }
  start(Phase::kSnapshot);
}

void BackgroundSave::start(Phase phase) {
  {
    const std::lock_guard lock(mutex_);
    done_ = false;
    failure_ = nullptr;
  }
  phase_ = phase;
  phases_.push(phase);
}

void BackgroundSave::work() {
  while (const std::optional<Phase> phase = phases_.pop()) {
    const auto begin = std::chrono::steady_clock::now();
    std::exception_ptr failure;
    try {
      run(*phase);
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    spent_ns_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count();
    failure_ = failure;
    done_ = true;
    changed_.notify_all();
  }
}

void BackgroundSave::run(Phase phase) {
  switch (phase) {
    case Phase::kNone: return;
    case Phase::kSnapshot: states_ = input_.snapshot(); return prepare();
    case Phase::kPrepare: return prepare();
    case Phase::kWrite: return write();
    case Phase::kCommit: return commit();
  }
}

void BackgroundSave::prepare() {
  if (options_.rank != 0) return;
  if (options_.require_locations) options_.require_locations();
  prepare_save(options_.locations[place_].root, step());
}

void BackgroundSave::write() {
  const storage::Location directory = step_directory(options_.locations[place_].root, step());
  FileRecord shared = keep_shared_slices();
  FileRecord written = write_rank_file(directory, options_.rank, input_.manifest.type, states_);
  std::vector<FileRecord> companions = write_companions(directory, input_.companions);
  const std::lock_guard lock(mutex_);
  written_ = std::move(written);
  written_shared_ = std::move(shared);
  companions_ = std::move(companions);
}

// Frozen slices are hashed once and written to each location once.
FileRecord BackgroundSave::keep_shared_slices() {
  const TensorType type = input_.manifest.type;
  if (!shared_) shared_ = shared_record(type, states_);
  if (!shared_->name.empty()) {
    const Trust trust = kept_[place_] != 0 ? Trust::kByLength : Trust::kByContent;
    keep_shared(options_.locations[place_].root, *shared_, type, states_, trust);
    kept_[place_] = 1;
  }
  return *shared_;
}

void BackgroundSave::commit() {
  if (options_.rank != 0) return;
  if (options_.require_locations) options_.require_locations();
  const SaveLocation& place = options_.locations[place_];
  commit_save(step_directory(place.root, step()), input_.manifest, place.retention);
}

void BackgroundSave::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_; });
}

bool BackgroundSave::wait_while_still() {
  constexpr std::chrono::seconds kLook{1};
  const auto moved = [&] {
    int64_t bytes = 0;
    for (const SaveLocation& place : options_.locations) bytes += place.root.moved_bytes();
    return bytes;
  };
  const int64_t before = moved();
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLook, [&] { return done_; })) {
    if (moved() != before) return false;
  }
  return true;
}

namespace {

SaveStatus::File word_of(const FileRecord& record) {
  return {record.bytes, static_cast<int64_t>(record.checksum),
          static_cast<int64_t>(record.header.value_or(0))};
}

FileRecord record_of(const SaveStatus::File& word, std::vector<base::Interval> intervals) {
  return {.bytes = word.bytes,
          .checksum = static_cast<uint64_t>(word.checksum),
          .header = static_cast<uint64_t>(word.header),
          .intervals = std::move(intervals)};
}

}  // namespace

SaveStatus BackgroundSave::status() const {
  const std::lock_guard lock(mutex_);
  if (!done_) return {};
  return {
      .done = 1, .failed = failure_ ? 1 : 0, .own = word_of(written_), .shared = word_of(written_shared_)};
}

std::exception_ptr BackgroundSave::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

int64_t BackgroundSave::spent_ns() const {
  const std::lock_guard lock(mutex_);
  return spent_ns_;
}

// Rebuilds all ranks' file records from their status; rank 0 commits them.
void BackgroundSave::note_files(std::span<const SaveStatus> words) {
  const model::ParameterTable table = model::parameter_table(input_.manifest.model);
  const link::OwnerLayout owners{options_.world_size};
  input_.manifest.world_size = options_.world_size;
  input_.manifest.files.clear();
  input_.manifest.shared.clear();
  saved_bytes_ = shared_bytes_ = 0;
  const auto intervals = [&](int rank, bool trained) {
    std::vector<base::Interval> held;
    for (const model::Bucket& bucket : table.buckets)
      held.push_back(bucket.trained == trained ? owners.owned(bucket, rank) : base::Interval{});
    return held;
  };
  for (int rank = 0; rank < options_.world_size; ++rank) {
    const SaveStatus& word = words[static_cast<size_t>(rank)];
    FileRecord own = record_of(word.own, intervals(rank, true));
    own.name = rank_file_name(rank);
    saved_bytes_ += own.bytes;
    input_.manifest.files.push_back(std::move(own));
    if (word.shared.bytes == 0) continue;
    FileRecord shared = record_of(word.shared, intervals(rank, false));
    shared.name = shared_file_name(*shared.header);
    shared_bytes_ += shared.bytes;
    input_.manifest.shared.push_back(std::move(shared));
  }
  const std::lock_guard lock(mutex_);
  input_.manifest.companions = companions_;
}

// Goes on after the end of a location's save, successful or not.
BackgroundSave::Progress BackgroundSave::next_place(Progress progress) {
  ++place_;
  if (place_ < options_.locations.size()) {
    start(Phase::kPrepare);
  } else {
    phase_ = Phase::kNone;
  }
  return progress;
}

BackgroundSave::Progress BackgroundSave::advance(std::span<const SaveStatus> words) {
  if (!busy()) return Progress::kIdle;
  const bool all_done = std::ranges::all_of(words, [](const SaveStatus& word) { return word.done != 0; });
  if (!all_done) return Progress::kUnderWay;
  if (std::ranges::any_of(words, [](const SaveStatus& word) { return word.failed != 0; })) {
    if (committed()) return next_place(Progress::kMirrorFailed);
    phase_ = Phase::kNone;
    return Progress::kFailed;
  }
  switch (phase_) {
    case Phase::kNone: break;
    case Phase::kSnapshot:
    case Phase::kPrepare: start(Phase::kWrite); break;
    case Phase::kWrite:
      note_files(words);
      start(Phase::kCommit);
      break;
    case Phase::kCommit: return next_place(committed() ? Progress::kMirrored : Progress::kCommitted);
  }
  return Progress::kUnderWay;
}

void BackgroundSave::drop_mirrors() {
  SLUICE_ASSERT(committed(), "a save is dropped that is not committed");
  phase_ = Phase::kNone;
}

}  // namespace sluice::checkpoint
