#include "transport/mail.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace sluice::transport {
namespace {

constexpr uint32_t kLongestLetter = 4 << 20;  // enough for a roster of some ten thousand members
constexpr int kMostStrangers = 64;

// A frame: the message's size, its proof and the message.
constexpr size_t kHeaderBytes = sizeof(uint32_t) + kProofBytes;

std::string frame_of(const RunKey& key, const std::string& message) {
  const auto size = static_cast<uint32_t>(message.size());
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + proof_of(key, message) + message;
}

// The first message of each connection; it only carries the proof and is not delivered.
const std::string kGreeting = "hello";

}  // namespace

Mail::Mail(Socket listener, RunKey key) : listener_(std::move(listener)), key_(std::move(key)) {
  never_block(listener_);
}

void Mail::connect(const Place& to) {
  if (outgoing_.contains(to)) return;
  try {
    Socket socket = begin_connecting(to.first, to.second);
    if (socket.is_open()) {
      outgoing_[to] = {.socket = std::move(socket), .unsent = frame_of(key_, kGreeting)};
      return;
    }
  } catch (const base::RunError&) {  // the name cannot be resolved any more
  }
  unreachable_.push_back(to);
}

void Mail::send(const Place& to, const std::string& message) {
  connect(to);
  const auto found = outgoing_.find(to);
  if (found == outgoing_.end()) return;
  found->second.unsent += frame_of(key_, message);
}

void Mail::watch(std::vector<pollfd>& entries) const {
  if (listener_.is_open()) entries.push_back({listener_.fd(), POLLIN, 0});
  for (const Incoming& incoming : incoming_) entries.push_back({incoming.socket.fd(), POLLIN, 0});
  for (const auto& [place, outgoing] : outgoing_) {
    const short events = outgoing.unsent.empty() ? POLLIN : POLLIN | POLLOUT;
    entries.push_back({outgoing.socket.fd(), events, 0});
  }
}

bool Mail::is_sent() const {
  return std::ranges::all_of(outgoing_, [](const auto& entry) { return entry.second.unsent.empty(); });
}

// Accepts at most this many at once, so that none is dropped before it was read.
void Mail::accept_all() {
  for (int accepted = 0; accepted < kMostStrangers; ++accepted) {
    Socket socket = accept_from(listener_);
    if (!socket.is_open()) return;
    never_block(socket);
    incoming_.push_back({.socket = std::move(socket)});
  }
}

// Drops the oldest unproved connections if there are too many.
void Mail::forget_strangers() {
  auto surplus = std::ranges::count(incoming_, false, &Incoming::proved) - kMostStrangers;
  std::erase_if(incoming_, [&](const Incoming& incoming) { return !incoming.proved && surplus-- > 0; });
}

// Messages are read first: a process that ends has sent its messages before.
Mail::News Mail::serve() {
  News news;
  const auto read_all = [&] {
    accept_all();
    std::erase_if(incoming_, [&](Incoming& incoming) { return !read(incoming, news.messages); });
  };
  read_all();
  forget_strangers();
  news.gone = std::exchange(unreachable_, {});
  for (auto entry = outgoing_.begin(); entry != outgoing_.end();) {
    const bool open = write(entry->second);
    if (!open) news.gone.push_back(entry->first);
    entry = open ? std::next(entry) : outgoing_.erase(entry);
  }
  if (!news.gone.empty()) read_all();  // reads the last messages of peers that are gone
  return news;
}

// Returns false if the connection has ended or is a stranger's.
bool Mail::read(Incoming& incoming, std::vector<std::string>& messages) const {
  char buffer[1 << 16];
  ssize_t got = 0;
  while ((got = recv(incoming.socket.fd(), buffer, sizeof buffer, 0)) > 0)
    incoming.received.append(buffer, static_cast<size_t>(got));
  const bool open = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  size_t taken = 0;
  while (incoming.received.size() - taken >= kHeaderBytes) {
    uint32_t size = 0;
    std::memcpy(&size, incoming.received.data() + taken, sizeof size);
    if (size > kLongestLetter) return false;
    if (incoming.received.size() - taken < kHeaderBytes + size) break;
    const std::string proof = incoming.received.substr(taken + sizeof size, kProofBytes);
    std::string message = incoming.received.substr(taken + kHeaderBytes, size);
    if (!same_proof(proof, proof_of(key_, message))) return false;
    const bool is_greeting = !std::exchange(incoming.proved, true);
    if (!is_greeting) messages.push_back(std::move(message));
    taken += kHeaderBytes + size;
  }
  incoming.received.erase(0, taken);
  return open;
}

// Returns false if the connection has ended or was refused. Peers never send data on this connection.
bool Mail::write(Outgoing& outgoing) const {
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(outgoing.socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return false;
  char nothing = 0;
  const ssize_t got = recv(outgoing.socket.fd(), &nothing, 1, 0);
  const auto waits = [](int code) { return code == EAGAIN || code == EINTR || code == ENOTCONN; };
  if (got == 0 || (got < 0 && !waits(errno))) return false;
  if (outgoing.unsent.empty()) return true;
  const ssize_t sent =
      ::send(outgoing.socket.fd(), outgoing.unsent.data(), outgoing.unsent.size(), MSG_NOSIGNAL);
  if (sent > 0) outgoing.unsent.erase(0, static_cast<size_t>(sent));
  return sent >= 0 || waits(errno);
}

void Mail::close() {
  listener_.close();
  incoming_.clear();
  outgoing_.clear();
}

}  // namespace sluice::transport
