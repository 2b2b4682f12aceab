#include "corpus/python_child.h"

#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

extern char** environ;

namespace sluice::corpus {

using base::InputError;
using base::RunError;
using base::text;

namespace {

constexpr char kOk = 'K';

// Starts `arguments` with `descriptor` as its standard input and output.
pid_t spawn_on(int descriptor, const std::vector<std::string>& arguments, const std::string& subject) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, descriptor, 0);
  posix_spawn_file_actions_adddup2(&actions, descriptor, 1);
  std::vector<char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  pid_t child = -1;
  const int error = ::posix_spawnp(&child, pointers[0], &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw InputError(text("cannot start ", arguments[0], ": ", std::strerror(error), ": ", subject,
                          " is read by Python; name one with --python"));
  }
  return child;
}

}  // namespace

PythonChild::PythonChild(const PythonTools& tools, const std::string& script,
                         const std::vector<std::string>& arguments, std::string subject)
    : subject_(std::move(subject)) {
  const std::filesystem::path path = tools.scripts / script;
  if (!std::filesystem::exists(path)) {
    throw InputError(text("cannot read ", path.string(), ": ", subject_, " needs this script of Sluice's"));
  }
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw RunError(text("cannot make a socket pair: ", std::strerror(errno)));
  }
  socket_ = ends[0];
  try {
    std::vector<std::string> words = {tools.interpreter.empty() ? "python3" : tools.interpreter.string(),
                                      path.string()};
    words.insert(words.end(), arguments.begin(), arguments.end());
    child_ = spawn_on(ends[1], words, subject_);
    ::close(ends[1]);
    ends[1] = -1;
    check_status();
  } catch (...) {
    if (ends[1] >= 0) ::close(ends[1]);
    stop();
    throw;
  }
}

PythonChild::~PythonChild() { stop(); }

void PythonChild::stop() {
  if (socket_ >= 0) ::close(socket_);
  if (child_ > 0) {
    while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

void PythonChild::set_patience(double seconds) {
  patience_s_ = seconds;
  const auto whole = static_cast<time_t>(seconds);
  const timeval limit{whole, static_cast<suseconds_t>((seconds - static_cast<double>(whole)) * 1e6)};
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

void PythonChild::send(const void* data, size_t size) {
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t sent = ::send(socket_, next, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) {
      throw RunError(text("the process that reads ", subject_, " has ended: see its messages above"));
    }
    next += sent;
    size -= static_cast<size_t>(sent);
  }
}

void PythonChild::receive(void* data, size_t size) {
  char* next = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = ::recv(socket_, next, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      ::kill(child_, SIGKILL);
      throw RunError(text(subject_, " did not answer in ", patience_s_, " s: its process was ended"));
    }
    if (got <= 0) {
      throw RunError(text("the process that reads ", subject_, " has ended: see its messages above"));
    }
    next += got;
    size -= static_cast<size_t>(got);
  }
}

void PythonChild::check_status() {
  if (receive_number<char>() == kOk) return;
  std::string message(receive_number<uint64_t>(), '\0');
  receive(message.data(), message.size());
  throw InputError(message);
}

}  // namespace sluice::corpus
