#include "corpus/huggingface_tokenizer.h"

#include <spawn.h>
#include <sys/socket.h>
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
constexpr char kEncode = 'E';
constexpr char kDecode = 'D';

// Starts `arguments` with `descriptor` as its standard input and output.
pid_t spawn_on(int descriptor, const std::vector<std::string>& arguments) {
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
    throw InputError(
        text("cannot start ", arguments[0], ": ", std::strerror(error),
             ": a tokenizer.json needs a Python with the package `tokenizers`; name one with --python"));
  }
  return child;
}

}  // namespace

HuggingFaceTokenizer::HuggingFaceTokenizer(const std::filesystem::path& path, const TokenizerOptions& options)
    : path_(path.string()) {
  try {
    start(options);
  } catch (...) {
    stop();
    throw;
  }
}

HuggingFaceTokenizer::~HuggingFaceTokenizer() { stop(); }

void HuggingFaceTokenizer::start(const TokenizerOptions& options) {
  if (!std::filesystem::exists(path_)) throw InputError(text("cannot read ", path_, ": no such file"));
  if (!std::filesystem::exists(options.script)) {
    throw InputError(text("cannot read ", options.script.string(),
                          ": a tokenizer.json needs Sluice's script tools/hf_tokenize.py"));
  }
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw RunError(text("cannot make a socket pair: ", std::strerror(errno)));
  }
  socket_ = ends[0];
  try {
    child_ = spawn_on(ends[1], {options.python.empty() ? "python3" : options.python.string(),
                                options.script.string(), path_, options.end_token});
  } catch (...) {
    ::close(ends[1]);
    throw;
  }
  ::close(ends[1]);
  check_status();
  receive(&vocabulary_, sizeof(vocabulary_));
  receive(&end_id_, sizeof(end_id_));
}

// The child ends when its input does.
void HuggingFaceTokenizer::stop() {
  if (socket_ >= 0) ::close(socket_);
  if (child_ > 0) {
    while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

void HuggingFaceTokenizer::send(const void* data, size_t size) const {
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t sent = ::send(socket_, next, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0)
      throw RunError(text("the process that runs ", path_, " has ended: see its messages above"));
    next += sent;
    size -= static_cast<size_t>(sent);
  }
}

void HuggingFaceTokenizer::receive(void* data, size_t size) const {
  char* next = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = ::recv(socket_, next, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw RunError(text("the process that runs ", path_, " has ended: see its messages above"));
    next += got;
    size -= static_cast<size_t>(got);
  }
}

void HuggingFaceTokenizer::check_status() const {
  char status = 0;
  receive(&status, 1);
  if (status == kOk) return;
  uint64_t size = 0;
  receive(&size, sizeof(size));
  std::string message(size, '\0');
  receive(message.data(), size);
  throw InputError(text(path_, ": ", message));
}

std::vector<std::vector<int32_t>> HuggingFaceTokenizer::encode_all(std::span<const std::string> texts) const {
  const std::lock_guard lock(mutex_);
  const uint64_t count = texts.size();
  send(&kEncode, 1);
  send(&count, sizeof(count));
  for (const std::string& text : texts) {
    const uint64_t size = text.size();
    send(&size, sizeof(size));
    send(text.data(), size);
  }
  check_status();
  std::vector<std::vector<int32_t>> ids(texts.size());
  for (std::vector<int32_t>& each : ids) {
    uint64_t size = 0;
    receive(&size, sizeof(size));
    each.resize(size);
    receive(each.data(), size * sizeof(int32_t));
  }
  return ids;
}

std::vector<std::string> HuggingFaceTokenizer::decode_all(std::span<const std::vector<int32_t>> ids) const {
  const std::lock_guard lock(mutex_);
  const uint64_t count = ids.size();
  send(&kDecode, 1);
  send(&count, sizeof(count));
  for (const std::vector<int32_t>& each : ids) {
    const uint64_t size = each.size();
    send(&size, sizeof(size));
    send(each.data(), size * sizeof(int32_t));
  }
  check_status();
  std::vector<std::string> texts(ids.size());
  for (std::string& each : texts) {
    uint64_t size = 0;
    receive(&size, sizeof(size));
    each.resize(size);
    receive(each.data(), size);
  }
  return texts;
}

}  // namespace sluice::corpus
