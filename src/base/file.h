// Files that are either whole or absent, and errors that name the path.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace sluice::base {

// Reads the whole file. InputError if it cannot be read.
std::string read_file(const std::filesystem::path& path);

// A file that appears under its name only when complete: commit() flushes `path` + ".part-<pid>" to disk and
// renames it. Without commit() nothing is left behind. Symbolic links are followed; a device or pipe is
// written directly. RunError on a full disk or an unwritable directory, naming path, reason and bytes.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t size);
  void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }
  int64_t written_bytes() const { return written_bytes_; }
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path part_;
  int descriptor_ = -1;
  int64_t written_bytes_ = 0;
};

// AtomicFile in one call.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

// Creates the directory and its parents. RunError naming the path and the reason.
void make_directories(const std::filesystem::path& path);

// Flushes a directory's entries to disk, so that renames in it survive a crash.
void sync_directory(const std::filesystem::path& path);

// A file mapped read-only for its lifetime. InputError if it cannot be opened.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace sluice::base
