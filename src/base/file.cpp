#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/part.h"
#include "base/text.h"

namespace sluice::base {

namespace {

constexpr int64_t kWindowBytes = int64_t{32} << 20;

std::string reason() { return std::strerror(errno); }

void sync_and_close(int descriptor, const std::filesystem::path& path) {
  const bool synced = ::fsync(descriptor) == 0;
  const std::string why = reason();
  ::close(descriptor);
  if (!synced) throw RunError(text("cannot flush ", path.string(), " to disk: ", why));
}

// One window of a file is flushed to disk while the next is written. So no single flush of a large file takes
// so long that progress seems to stop. `written_bytes` is where a window ends.
void write_back(int descriptor, int64_t written_bytes, const std::filesystem::path& path) {
  constexpr unsigned kUntilWritten =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  const int64_t before = written_bytes - 2 * kWindowBytes;
  // An error that is reported here is not reported again by fsync. File systems without this call are left to
  // fsync.
  if (before >= 0 && ::sync_file_range(descriptor, before, kWindowBytes, kUntilWritten) != 0 &&
      (errno == EIO || errno == ENOSPC || errno == EDQUOT)) {
    throw RunError(text("cannot flush ", path.string(), " to disk: ", reason()));
  }
  ::sync_file_range(descriptor, written_bytes - kWindowBytes, kWindowBytes, SYNC_FILE_RANGE_WRITE);
}

// Whether `path` is a device or a pipe, which is written directly: a regular file must not replace it.
bool is_stream(const std::filesystem::path& path) {
  std::error_code none;
  const std::filesystem::file_status status = std::filesystem::status(path, none);
  return exists(status) && !is_regular_file(status) && !is_directory(status);
}

// A descriptor of the new part, claimed for this process; -1 if it cannot be created.
int open_part(const std::filesystem::path& part) {
  for (;;) {
    const int descriptor = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor < 0 || claim_part(descriptor)) return descriptor;
    ::close(descriptor);
  }
}

// The target of a symbolic link; `path` itself if it is none or its target does not exist.
std::filesystem::path followed(std::filesystem::path path) {
  std::error_code dangling;
  if (!is_symlink(std::filesystem::symlink_status(path, dangling))) return path;
  const std::filesystem::path target = std::filesystem::canonical(path, dangling);
  return dangling ? path : target;
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  return std::string(reinterpret_cast<const char*>(file.data()), file.size());
}

AtomicFile::AtomicFile(std::filesystem::path path) : path_(followed(std::move(path))) {
  if (is_stream(path_)) {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    part_ = part_of(path_);
    remove_abandoned_parts(path_);
    descriptor_ = open_part(part_);
  }
  if (descriptor_ < 0) {
    throw RunError(text("cannot write ", path_.string(), ": ", reason(),
                        ": choose a directory that exists and is writable"));
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!part_.empty()) ::unlink(part_.c_str());
}

void AtomicFile::write(const void* data, size_t size) {
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const int64_t left_bytes = kWindowBytes - written_bytes_ % kWindowBytes;
    const ssize_t wrote = ::write(descriptor_, next, std::min<size_t>(size, left_bytes));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      throw RunError(text("cannot write ", path_.string(), " after ",
                          human_bytes(static_cast<double>(written_bytes_)), ": ", reason(),
                          ": free space or choose another directory"));
    }
    next += wrote;
    size -= static_cast<size_t>(wrote);
    written_bytes_ += wrote;
    if (written_bytes_ % kWindowBytes == 0) write_back(descriptor_, written_bytes_, path_);
  }
}

void AtomicFile::commit() {
  const bool stream = part_.empty();
  if (stream) return static_cast<void>(::close(std::exchange(descriptor_, -1)));
  if (::fsync(descriptor_) != 0) {
    throw RunError(text("cannot flush ", path_.string(), " to disk: ", reason()));
  }
  // The part stays claimed until it has its name.
  if (::rename(part_.c_str(), path_.c_str()) != 0) {
    throw RunError(text("cannot rename ", part_.string(), " to ", path_.string(), ": ", reason()));
  }
  part_.clear();
  ::close(std::exchange(descriptor_, -1));
  const std::filesystem::path directory = path_.parent_path();
  sync_directory(directory.empty() ? std::filesystem::path(".") : directory);
}

void write_file_atomically(const std::filesystem::path& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

void make_directories(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    throw RunError(text("cannot make directory ", path.string(), ": ", error.message(),
                        ": choose a place that is writable"));
  }
}

void sync_directory(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) throw RunError(text("cannot open directory ", path.string(), ": ", reason()));
  sync_and_close(descriptor, path);
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (descriptor < 0 || ::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    const std::string why = descriptor < 0 ? reason() : "not a regular file";
    if (descriptor >= 0) ::close(descriptor);
    throw InputError(text("cannot read ", path.string(), ": ", why, ": name a file that is there"));
  }
  size_ = static_cast<size_t>(status.st_size);
  if (size_ > 0) {
    void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    const std::string why = reason();
    ::close(descriptor);
    if (mapped == MAP_FAILED)
      throw InputError(
          text("cannot map ", path.string(), ": ", why, ": raise the limit of memory (ulimit -v)"));
    data_ = static_cast<const std::byte*>(mapped);
  } else {
    ::close(descriptor);
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace sluice::base
