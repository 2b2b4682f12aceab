#include "corpus/unfinished.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json_fields.h"
#include "base/text.h"

namespace sluice::corpus {

using base::InputError;
using base::RunError;
using base::text;

namespace fs = std::filesystem;

namespace {

constexpr const char* kState = "state.json";
constexpr const char* kLock = "lock";

std::string reason() { return std::strerror(errno); }

base::Json signed_state(const std::string& fingerprint, const base::Json& state) {
  return {{"fingerprint", fingerprint},
          {"hash", base::hash_text(base::hash_bytes(base::json_text(state)))},
          {"state", state}};
}

// The state in a file with this fingerprint; null if there is none, or if it was damaged since.
base::Json state_of(const fs::path& path, const std::string& fingerprint) {
  if (fingerprint.empty() || !fs::exists(path)) return nullptr;
  try {
    const base::Json saved = base::read_json(path);
    const auto state = base::require<base::Json>(saved, "state", path.string());
    return saved == signed_state(fingerprint, state) ? state : nullptr;
  } catch (const InputError&) {
    return nullptr;
  }
}

}  // namespace

GrowingFile::GrowingFile(fs::path path, int64_t keep_bytes) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor_ < 0) {
    throw RunError(text("cannot write ", path_.string(), ": ", reason(),
                        ": choose a directory that exists and is writable"));
  }
  struct stat status {};
  const bool longer = ::fstat(descriptor_, &status) == 0 && status.st_size >= keep_bytes;
  if (longer && ::ftruncate(descriptor_, keep_bytes) == 0) return;
  ::close(std::exchange(descriptor_, -1));
  throw InputError(
      text(path_.string(), " is cut off: remove ", path_.parent_path().string(), " to begin anew"));
}

GrowingFile::~GrowingFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void GrowingFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(descriptor_, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      throw RunError(
          text("cannot write ", path_.string(), ": ", reason(), ": free space or choose another directory"));
    }
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
}

void GrowingFile::sync() {
  if (::fdatasync(descriptor_) != 0) {
    throw RunError(text("cannot flush ", path_.string(), " to disk: ", reason()));
  }
}

void GrowingFile::move_to(const fs::path& target) {
  sync();
  if (::rename(path_.c_str(), target.c_str()) != 0) {
    throw RunError(text("cannot rename ", path_.string(), " to ", target.string(), ": ", reason()));
  }
  base::sync_directory(target.has_parent_path() ? target.parent_path() : fs::path("."));
}

Unfinished::Unfinished(const fs::path& prefix, std::string fingerprint)
    : folder_(prefix.string() + ".unfinished"), fingerprint_(std::move(fingerprint)) {
  lock();
  state_ = std::make_unique<base::Json>(state_of(folder_ / kState, fingerprint_));
  if (!state_->is_null()) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    if (entry.path().filename() != kLock) fs::remove_all(entry.path());
  }
}

void Unfinished::lock() {
  for (;;) {
    base::make_directories(folder_);
    lock_ = ::open((folder_ / kLock).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (lock_ < 0) {
      throw RunError(text("cannot write into ", folder_.string(), ": ", reason(),
                          ": choose a directory that exists and is writable"));
    }
    if (::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      ::close(std::exchange(lock_, -1));
      throw InputError(text("another process writes into ", folder_.string(),
                            ": wait for it, or choose another folder with --out"));
    }
    struct stat status {};
    if (::fstat(lock_, &status) != 0 || status.st_nlink > 0) return;
    ::close(std::exchange(lock_, -1));  // the process that had the lock has just removed the folder
  }
}

Unfinished::~Unfinished() {
  std::error_code ignored;
  if (!keep_) {
    // Rename first: the next process may make the folder anew while this one is being removed.
    const fs::path old = folder_.string() + text("-", ::getpid());
    fs::rename(folder_, old, ignored);
    fs::remove_all(old, ignored);
  }
  if (lock_ >= 0) ::close(lock_);
}

void Unfinished::save(base::Json state) {
  base::write_json(folder_ / kState, signed_state(fingerprint_, state));
  *state_ = std::move(state);
}

void Unfinished::keep() { keep_ = !state_->is_null(); }

}  // namespace sluice::corpus
