#include "base/stderr_lines.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "base/steady_time.h"

namespace sluice::base {

namespace {

// Non-blocking access to stderr. A pipe is reopened for this: O_NONBLOCK belongs to the file description, and
// setting it on a shared one would affect other processes.
class Stderr {
 public:
  Stderr() {
    struct stat facts {};
    if (::fstat(STDERR_FILENO, &facts) != 0) return;
    is_socket_ = S_ISSOCK(facts.st_mode);
    if (!S_ISFIFO(facts.st_mode)) return;
    is_pipe_ = true;
    own_ = ::open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  }
  ~Stderr() {
    if (own_ >= 0) ::close(own_);
  }
  Stderr(const Stderr&) = delete;
  Stderr& operator=(const Stderr&) = delete;

  // Like ::write(), but fails with EAGAIN where a pipe or socket would block.
  ssize_t write(std::string_view bytes) const {
    if (is_socket_) return ::send(STDERR_FILENO, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (!is_pipe_) return ::write(STDERR_FILENO, bytes.data(), bytes.size());
    if (own_ >= 0) return ::write(own_, bytes.data(), bytes.size());
    // The pipe belongs to another user and cannot be reopened. One page fits whenever poll() reports room.
    constexpr size_t kPage = 4096;
    if (!has_room(0)) {
      errno = EAGAIN;
      return -1;
    }
    return ::write(STDERR_FILENO, bytes.data(), std::min(bytes.size(), kPage));
  }
  bool has_room(int64_t patience_ns) const {
    pollfd entry{own_ >= 0 ? own_ : STDERR_FILENO, POLLOUT, 0};
    return ::poll(&entry, 1, static_cast<int>(patience_ns / 1'000'000)) > 0;
  }

 private:
  bool is_socket_ = false;
  bool is_pipe_ = false;
  int own_ = -1;
};

}  // namespace

bool say_on_stderr(std::string_view lines, int64_t patience_ns) {
  const Stderr out;
  const int64_t deadline_ns = now_ns() + patience_ns;
  while (!lines.empty()) {
    const ssize_t written = out.write(lines);
    if (written > 0) {
      lines.remove_prefix(static_cast<size_t>(written));
      continue;
    }
    if (written < 0 && errno == EINTR) continue;
    const bool full = written < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    if (!full || !out.has_room(std::max<int64_t>(0, deadline_ns - now_ns()))) return false;
  }
  return true;
}

}  // namespace sluice::base
