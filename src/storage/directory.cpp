#include "storage/directory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace sluice::storage {

namespace fs = std::filesystem;
using base::RunError;

namespace {

class MappedSource : public Source {
 public:
  explicit MappedSource(const fs::path& path) : file_(path) {}

  int64_t size() const override { return static_cast<int64_t>(file_.size()); }
  const std::byte* data() const override { return file_.data(); }
  int readers() const override { return 4; }               // enough to keep a disk's queue filled
  bool release(base::Interval) override { return false; }  // the kernel reclaims memory by itself

  void read(base::Interval bytes, std::byte* out) override {
    std::memcpy(out, file_.data() + bytes.begin, static_cast<size_t>(bytes.size()));
  }

  // Makes the kernel read the range in large pieces instead of page by page.
  void fetch(base::Interval bytes) override {
    static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto address = reinterpret_cast<uintptr_t>(file_.data() + bytes.begin);
    const uintptr_t begin = address / page * page;
    const uintptr_t end = address + static_cast<uintptr_t>(bytes.size());
    if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
  }

 private:
  base::MappedFile file_;
};

class AtomicSink : public Sink {
 public:
  explicit AtomicSink(const fs::path& path) : file_(path) {}

  void write(const void* data, size_t size) override { file_.write(data, size); }
  void finish() override { file_.commit(); }

 private:
  base::AtomicFile file_;
};

}  // namespace

std::vector<Entry> FileSystem::entries(const std::string& directory) {
  std::vector<Entry> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    std::error_code ignored;
    found.push_back({entry.path().filename().string(), entry.is_directory(ignored)});
  }
  std::ranges::sort(found, {}, &Entry::name);
  return found;
}

std::optional<FileStatus> FileSystem::status(const std::string& file) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (status.type() == fs::file_type::none) {
    throw RunError(base::text("cannot look for ", file, ": ", error.message()));
  }
  if (status.type() != fs::file_type::regular) return std::nullopt;
  const uintmax_t bytes = fs::file_size(file, error);
  if (error) return std::nullopt;  // removed in the meantime
  const fs::file_time_type written = fs::last_write_time(file, error);
  if (error) return std::nullopt;
  return FileStatus{static_cast<int64_t>(bytes),
                    std::chrono::time_point_cast<std::chrono::system_clock::duration>(
                        fs::file_time_type::clock::to_sys(written))};
}

std::unique_ptr<Source> FileSystem::open(const std::string& file) {
  return std::make_unique<MappedSource>(file);
}

std::unique_ptr<Sink> FileSystem::create(const std::string& file, int64_t) {
  return std::make_unique<AtomicSink>(file);
}

void FileSystem::make_directory(const std::string& directory) {
  base::make_directories(directory);
  const fs::path parent = fs::path(directory).parent_path();
  base::sync_directory(parent.empty() ? fs::path(".") : parent);
}

void FileSystem::remove(const std::string& file) {
  std::error_code error;
  fs::remove(file, error);
  if (error) throw RunError(base::text("cannot remove ", file, ": ", error.message()));
}

void FileSystem::remove_tree(const std::string& directory) {
  std::error_code error;
  fs::remove_all(directory, error);
  if (error) throw RunError(base::text("cannot remove ", directory, ": ", error.message()));
}

bool FileSystem::rename(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) throw RunError(base::text("cannot rename ", from, ": ", error.message()));
  const fs::path parent = fs::path(to).parent_path();
  base::sync_directory(parent.empty() ? fs::path(".") : parent);
  return true;
}

}  // namespace sluice::storage
