#include "base/appended_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace sluice::base {

AppendedFile::AppendedFile(std::filesystem::path path) : path_(std::move(path)) { open(); }

AppendedFile::~AppendedFile() { close(); }

void AppendedFile::open() {
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0) throw RunError(text("cannot write ", path_.string(), ": ", std::strerror(errno)));
}

void AppendedFile::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

void AppendedFile::append(std::string_view bytes) {
  follow_name();
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      throw RunError(text("cannot write ", path_.string(), ": ", std::strerror(errno),
                          ": free space and resume the run"));
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

void AppendedFile::follow_name() {
  struct stat own {};
  struct stat named {};
  if (::fstat(descriptor_, &own) != 0) return;
  if (::stat(path_.c_str(), &named) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) restore();
    return;  // a file system that is away for a moment returns, or the write fails
  }
  if (own.st_dev == named.st_dev && own.st_ino == named.st_ino) return;
  close();
  open();
}

void AppendedFile::restore() {
  make_directories(path_.parent_path());
  AtomicFile file(path_);
  std::vector<char> buffer(1 << 20);
  for (off_t at = 0;;) {
    const ssize_t got = ::pread(descriptor_, buffer.data(), buffer.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw RunError(text("cannot read what ", path_.string(), " was: ", std::strerror(errno)));
    if (got == 0) break;
    file.write(buffer.data(), static_cast<size_t>(got));
    at += got;
  }
  file.commit();
  close();
  open();
  restored_ = true;
}

}  // namespace sluice::base
