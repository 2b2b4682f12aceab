#include "corpus/python_child.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "base/text.h"

extern char** environ;

namespace sluice::corpus {

using base::InputError;
using base::RunError;
using base::text;

namespace {

constexpr char kReady = 'K';
constexpr char kLacking = 'M';
constexpr int kChannel = 3;                       // the child's end of the socket
constexpr size_t kBufferBytes = size_t{1} << 16;  // per direction

// The child's descriptors. Its standard output goes to standard error, so prints are not taken for answers.
class FileActions {
 public:
  explicit FileActions(int channel) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_adddup2(&actions_, channel, kChannel);
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (::fcntl(STDERR_FILENO, F_GETFD) < 0)
      posix_spawn_file_actions_addopen(&actions_, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions_, STDERR_FILENO, STDOUT_FILENO);
  }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

// Starts the child in its own process group, which can be ended with everything the child starts, and without
// the signals blocked that this program blocks.
class Attributes {
 public:
  Attributes() {
    posix_spawnattr_init(&attributes_);
    sigset_t none, usual;
    sigemptyset(&none);
    sigemptyset(&usual);
    for (const int signal : {SIGTERM, SIGINT, SIGALRM, SIGCHLD}) sigaddset(&usual, signal);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &usual);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(&attributes_,
                             POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~Attributes() { posix_spawnattr_destroy(&attributes_); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_;
};

// Returns the error number of a failed start; 0: `child` runs.
int spawn(const std::vector<std::string>& words, int channel, pid_t& child) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  const FileActions actions(channel);
  const Attributes attributes;
  return ::posix_spawnp(&child, pointers[0], actions.get(), attributes.get(), pointers.data(), environ);
}

// The status of a child that ends within `patience`; nullopt: it still runs. 0 if the status is unknown.
std::optional<int> wait_for(pid_t child, std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (true) {
    int status = 0;
    const pid_t found = ::waitpid(child, &status, WNOHANG);
    if (found == child) return status;
    if (found < 0 && errno != EINTR) return 0;
    if (std::chrono::steady_clock::now() >= end) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace

PythonChild::PythonChild(PythonTools tools, std::string script, std::vector<std::string> arguments,
                         std::string subject)
    : tools_(std::move(tools)),
      script_(std::move(script)),
      arguments_(std::move(arguments)),
      subject_(std::move(subject)) {
  start();
}

PythonChild::~PythonChild() { stop(); }

void PythonChild::start() {
  const std::filesystem::path path = tools_.scripts / script_;
  if (!std::filesystem::exists(path)) {
    throw InputError(text("cannot read ", path.string(), ": ", subject_, " needs this script of Sluice's"));
  }
  std::vector<std::filesystem::path> candidates = tools_.usual;
  if (!tools_.interpreter.empty()) candidates = {tools_.interpreter};
  if (candidates.empty()) candidates = {"python3"};
  std::vector<std::string> faults;
  for (const std::filesystem::path& candidate : candidates) {
    faults.push_back(try_interpreter(candidate));
    if (!faults.back().empty()) continue;
    tools_.interpreter = candidate;  // restarted children use it, too
    return;
  }
  throw InputError(text(subject_, " is read by Python, and ", base::join(faults, "; "),
                        ": install what lacks, or name another Python with ", tools_.option));
}

std::string PythonChild::try_interpreter(const std::filesystem::path& interpreter) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw RunError(text("cannot make a socket pair: ", std::strerror(errno)));
  }
  socket_ = ends[0];
  std::vector<std::string> words = {interpreter.string(), "-E", (tools_.scripts / script_).string()};
  words.insert(words.end(), arguments_.begin(), arguments_.end());
  const int error = spawn(words, ends[1], child_);
  ::close(ends[1]);
  try {
    if (error != 0) {
      child_ = -1;
      stop();
      return text("cannot start ", interpreter.string(), ": ", std::strerror(error));
    }
    set_patience(tools_.start_s);
    const char status = receive_number<char>();
    set_patience(0);
    if (status == kReady) return "";
    const std::string message = receive_text();
    stop();
    if (status == kLacking) return message;
    throw InputError(message);
  } catch (const ChildLate&) {
    stop();
    throw;
  } catch (const ChildEnded& gone) {
    stop();
    return text(interpreter.string(), ": ", gone.what());
  } catch (...) {
    stop();
    throw;
  }
}

void PythonChild::restart() {
  const double patience_s = patience_s_;
  kill();
  stop();
  start();
  set_patience(patience_s);
}

void PythonChild::kill() {
  if (child_ > 0) ::kill(-child_, SIGKILL);
}

void PythonChild::stop() {
  constexpr std::chrono::milliseconds kPatience{2000};
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  out_.clear();
  in_begin_ = in_end_ = 0;
  if (child_ > 0 && !wait_for(child_, kPatience)) {
    kill();
    wait_for(child_, kPatience);
  }
  child_ = -1;
}

std::string PythonChild::ended() {
  constexpr std::chrono::milliseconds kPatience{500};
  const std::optional<int> status = child_ > 0 ? wait_for(child_, kPatience) : std::nullopt;
  if (status) child_ = -1;
  if (status && WIFSIGNALED(*status))
    return text("was ended by signal ", WTERMSIG(*status), " (", ::strsignal(WTERMSIG(*status)), ")");
  if (status && WIFEXITED(*status) && WEXITSTATUS(*status) != 0)
    return text("ended with status ", WEXITSTATUS(*status), ": see its messages above");
  return "has ended: see its messages above";
}

void PythonChild::set_patience(double seconds) {
  patience_s_ = seconds;
  const double whole = std::floor(seconds);
  const timeval limit{static_cast<time_t>(whole), static_cast<suseconds_t>((seconds - whole) * 1e6)};
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

void PythonChild::send(const void* data, size_t size) {
  const char* bytes = static_cast<const char*>(data);
  if (out_.size() + size > kBufferBytes) flush();
  if (size > kBufferBytes) return send_at_once(bytes, size);
  out_.append(bytes, size);
}

void PythonChild::flush() {
  const std::string waiting = std::exchange(out_, {});
  send_at_once(waiting.data(), waiting.size());
}

void PythonChild::send_at_once(const char* data, size_t size) {
  while (size > 0) {
    const ssize_t sent = ::send(socket_, data, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) throw ChildEnded(text("the process that reads ", subject_, " ", ended()));
    data += sent;
    size -= static_cast<size_t>(sent);
  }
}

void PythonChild::receive(void* data, size_t size) {
  flush();
  char* next = static_cast<char*>(data);
  while (size > 0) {
    if (in_begin_ == in_end_) {
      in_.resize(kBufferBytes);
      in_begin_ = in_end_ = 0;
      in_end_ = receive_some(in_.data(), in_.size());
    }
    const size_t now = std::min(size, in_end_ - in_begin_);
    std::memcpy(next, in_.data() + in_begin_, now);
    in_begin_ += now;
    next += now;
    size -= now;
  }
}

size_t PythonChild::receive_some(char* data, size_t size) {
  while (true) {
    const ssize_t got = ::recv(socket_, data, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      kill();
      throw ChildLate(text(subject_, " did not answer in ", patience_s_, " s: its process was ended"));
    }
    if (got <= 0) throw ChildEnded(text("the process that reads ", subject_, " ", ended()));
    return static_cast<size_t>(got);
  }
}

void PythonChild::send_text(const std::string& text) {
  send_number<uint64_t>(text.size());
  send(text.data(), text.size());
}

std::string PythonChild::receive_text() {
  std::string text(receive_number<uint64_t>(), '\0');
  receive(text.data(), text.size());
  return text;
}

void PythonChild::check_status() {
  if (receive_number<char>() == kReady) return;
  throw InputError(receive_text());
}

}  // namespace sluice::corpus
