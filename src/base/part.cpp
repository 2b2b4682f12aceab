#include "base/part.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <system_error>
#include <vector>

#include "base/text.h"

namespace sluice::base {

namespace fs = std::filesystem;

namespace {

constexpr const char* kMark = ".part-";

// All parts of `path`, of this process and of others.
std::vector<fs::path> parts_of(const fs::path& path) {
  const std::string prefix = path.filename().string() + kMark;
  const fs::path directory = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::vector<fs::path> parts;
  std::error_code error;
  for (fs::directory_iterator next(directory, error); !error && next != fs::directory_iterator();
       next.increment(error)) {
    const std::string name = next->path().filename().string();
    if (name.starts_with(prefix) && parse_integer(name.substr(prefix.size()))) parts.push_back(next->path());
  }
  return parts;
}

int open_for_lock(const fs::path& part) {
  const int descriptor = ::open(part.c_str(), O_RDWR | O_CLOEXEC);
  return descriptor >= 0 ? descriptor : ::open(part.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

}  // namespace

fs::path part_of(const fs::path& path) { return path.string() + text(kMark, ::getpid()); }

bool claim_part(int descriptor) {
  // Waits while another process checks whether the part is abandoned. Without locks there is no such check.
  static_cast<void>(::flock(descriptor, LOCK_EX));
  struct stat status {};
  return ::fstat(descriptor, &status) != 0 || status.st_nlink > 0;
}

void remove_abandoned_parts(const fs::path& path) {
  for (const fs::path& part : parts_of(path)) {
    const int descriptor = open_for_lock(part);
    if (descriptor < 0) continue;
    std::error_code ignored;
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) fs::remove_all(part, ignored);
    ::close(descriptor);
  }
}

}  // namespace sluice::base
