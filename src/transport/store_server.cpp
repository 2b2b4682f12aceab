#include "transport/store_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "transport/reception.h"

namespace sluice::transport {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kPurpose = "store";
constexpr uint32_t kLongestMessage = 16 << 20;
constexpr int64_t kAnswerNs =
    60'000'000'000;  // for rank 0's thread to answer: a backstop behind the heartbeat

enum class Request : char { kSet, kFind, kAdd, kCompareSet, kErase, kSize, kWait };

// A message is its size in 4 bytes, then texts, each preceded by its size. A request's first text is one
// character, its kind; its numbers are decimal texts.
std::string pack(const std::vector<std::string>& texts) {
  std::string message(sizeof(uint32_t), '\0');
  const auto put_size = [](uint32_t size) {
    std::string bytes(sizeof size, '\0');
    std::memcpy(bytes.data(), &size, sizeof size);
    return bytes;
  };
  for (const std::string& text : texts) message += put_size(static_cast<uint32_t>(text.size())) + text;
  message.replace(0, sizeof(uint32_t), put_size(static_cast<uint32_t>(message.size() - sizeof(uint32_t))));
  return message;
}

// The texts of a message; nullopt if they are cut short.
std::optional<std::vector<std::string>> unpack(std::string_view body) {
  std::vector<std::string> texts;
  while (!body.empty()) {
    uint32_t size = 0;
    if (body.size() < sizeof size) return std::nullopt;
    std::memcpy(&size, body.data(), sizeof size);
    body.remove_prefix(sizeof size);
    if (body.size() < size) return std::nullopt;
    texts.emplace_back(body.substr(0, size));
    body.remove_prefix(size);
  }
  return texts;
}

std::vector<std::string> request(Request kind, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), std::string(1, static_cast<char>(kind)));
  return arguments;
}

bool send_all(const Socket& socket, const std::string& message) {
  size_t sent = 0;
  while (sent < message.size()) {
    const ssize_t some = send(socket.fd(), message.data() + sent, message.size() - sent, MSG_NOSIGNAL);
    if (some < 0 && errno == EINTR) continue;
    if (some <= 0) return false;
    sent += static_cast<size_t>(some);
  }
  return true;
}

}  // namespace

class StoreServer::Service {
 public:
  Service(std::vector<Socket> listeners, const RunKey& key)
      : world_size_(key.world_size),
        reception_(std::move(listeners), key, kPurpose, {}),
        wake_(eventfd(0, EFD_CLOEXEC)),
        thread_([this] { run(); }) {}

  ~Service() {
    stopping_ = true;
    const uint64_t one = 1;
    static_cast<void>(!write(wake_.fd(), &one, sizeof one));
    thread_.join();
  }

 private:
  using Answer = std::vector<std::string>;
  struct Rank {
    int rank = 0;
    Socket socket;
    std::string received;              // an incomplete message
    std::vector<std::string> awaited;  // keys of a pending kWait; empty: none is pending
    Clock::time_point deadline;
    bool gave_up = false;  // its kWait timed out because a rank is missing, so its leaving is no news
  };

  void run() {
    while (!stopping_) {
      sleep_until_asked();
      for (Guest& guest : reception_.serve()) {
        ranks_.push_back({.rank = guest.rank, .socket = std::move(guest.socket)});
        if (++seen_ == world_size_) reception_.close();
      }
      std::erase_if(ranks_, [this](Rank& rank) {
        if (serve(rank)) return false;
        if (left_.empty() && !rank.gave_up) {
          left_ = base::text("rank ", rank.rank, " left while the ranks were joining");
        }
        return true;
      });
      answer_waiting();
    }
  }

  void sleep_until_asked() {
    std::vector<pollfd> entries = {{wake_.fd(), POLLIN, 0}};
    reception_.watch(entries);
    Clock::time_point next = Clock::now() + std::chrono::nanoseconds(reception_.patience_ns());
    for (const Rank& rank : ranks_) {
      entries.push_back({rank.socket.fd(), POLLIN, 0});
      if (!rank.awaited.empty()) next = std::min(next, rank.deadline);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
    poll(entries.data(), entries.size(), static_cast<int>(std::max<int64_t>(left, 0)));
  }

  // Reads and answers all requests. Returns false if the rank has gone or its requests are malformed.
  bool serve(Rank& rank) {
    char buffer[4096];
    while (true) {
      const ssize_t got = recv(rank.socket.fd(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (got == 0) return false;
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) break;
      rank.received.append(buffer, static_cast<size_t>(got));
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK) return false;
    uint32_t size = 0;
    while (rank.received.size() >= sizeof size) {
      std::memcpy(&size, rank.received.data(), sizeof size);
      if (size > kLongestMessage) return false;
      if (rank.received.size() < sizeof size + size) return true;
      const auto texts = unpack(std::string_view(rank.received).substr(sizeof size, size));
      rank.received.erase(0, sizeof size + size);
      if (!texts || !answer(rank, *texts)) return false;
    }
    return true;
  }

  bool answer(Rank& rank, const std::vector<std::string>& texts) {
    if (texts.empty() || texts[0].size() != 1) return false;
    const auto kind = static_cast<Request>(texts[0][0]);
    const std::vector<std::string> arguments(texts.begin() + 1, texts.end());
    if (kind != Request::kWait) {
      const auto answered = evaluate(kind, arguments);
      return answered && send_all(rank.socket, pack(*answered));
    }
    const auto timeout_ns = arguments.empty() ? std::nullopt : base::parse_integer(arguments[0]);
    if (!timeout_ns) return false;
    rank.awaited.assign(arguments.begin() + 1, arguments.end());
    rank.deadline = Clock::now() + std::chrono::nanoseconds(*timeout_ns);
    return !rank.awaited.empty() || send_all(rank.socket, pack({"1"}));
  }

  // Handles all requests except kWait; nullopt for a malformed one.
  std::optional<Answer> evaluate(Request kind, const std::vector<std::string>& arguments) {
    const size_t wanted = kind == Request::kSize                              ? 0
                          : kind == Request::kFind || kind == Request::kErase ? 1
                          : kind == Request::kSet || kind == Request::kAdd    ? 2
                                                                              : 3;
    if (arguments.size() != wanted) return std::nullopt;
    if (kind == Request::kSize) return Answer{std::to_string(texts_.size())};
    const std::string& key = arguments[0];
    const auto found = texts_.find(key);
    const std::string held = found == texts_.end() ? "" : found->second;
    switch (kind) {
      case Request::kSet: texts_[key] = arguments[1]; return Answer{};
      case Request::kFind: return found == texts_.end() ? Answer{} : Answer{held};
      case Request::kErase: return Answer{std::to_string(texts_.erase(key))};
      case Request::kAdd: {
        const auto amount = base::parse_integer(arguments[1]);
        if (!amount) return std::nullopt;
        return Answer{texts_[key] = std::to_string(base::parse_integer(held).value_or(0) + *amount)};
      }
      case Request::kCompareSet:
        if (held != arguments[1]) return Answer{held};
        return Answer{texts_[key] = arguments[2]};
      default: return std::nullopt;
    }
  }

  void answer_waiting() {
    const Clock::time_point now = Clock::now();
    for (Rank& rank : ranks_) {
      if (rank.awaited.empty()) continue;
      const bool there =
          std::ranges::all_of(rank.awaited, [&](const auto& key) { return texts_.contains(key); });
      if (!there && left_.empty() && now < rank.deadline) continue;
      rank.awaited.clear();
      rank.gave_up = !there && left_.empty();
      // A write failure is ignored: the peer's end shows when it is read from.
      send_all(rank.socket, pack(there ? Answer{"1"} : left_.empty() ? Answer{"0"} : Answer{"0", left_}));
    }
  }

  const int world_size_;
  Reception reception_;
  int seen_ = 0;
  std::string left_;  // the first rank to leave: keys that others wait for may never come
  std::vector<Rank> ranks_;
  std::map<std::string, std::string> texts_;
  Socket wake_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

StoreServer::StoreServer(std::vector<Socket> listeners, const RunKey& key)
    : service_(std::make_unique<Service>(std::move(listeners), key)) {}
StoreServer::~StoreServer() = default;

StoreClient::StoreClient(const std::string& address, int port, const RunKey& key, int rank,
                         int64_t timeout_ns)
    : socket_(enter(address, port, key, kPurpose, rank, timeout_ns)) {}

std::string StoreClient::ask(const std::string& message, int64_t patience_ns) {
  uint32_t size = 0;
  std::string body;
  bool answered = send_all(socket_, message) && read_all(socket_, &size, sizeof size, patience_ns) &&
                  size <= kLongestMessage;
  if (answered) {
    body.resize(size);
    answered = read_all(socket_, body.data(), size, patience_ns);
  }
  if (!answered) throw base::RunError("rank 0 left, and its store with it");
  return body;
}

namespace {

// The only text of an answer.
std::string single(const std::string& body) {
  const auto texts = unpack(body);
  if (!texts || texts->size() != 1) throw base::RunError("the store's answer is not one of Sluice");
  return texts->front();
}

int64_t number(const std::string& body) { return base::parse_integer(single(body)).value_or(0); }

}  // namespace

void StoreClient::set(const std::string& key, const std::string& value) {
  ask(pack(request(Request::kSet, {key, value})), kAnswerNs);
}

std::optional<std::string> StoreClient::find(const std::string& key) {
  const std::string body = ask(pack(request(Request::kFind, {key})), kAnswerNs);
  if (body.empty()) return std::nullopt;
  return single(body);
}

int64_t StoreClient::add(const std::string& key, int64_t amount) {
  return number(ask(pack(request(Request::kAdd, {key, std::to_string(amount)})), kAnswerNs));
}

std::string StoreClient::compare_set(const std::string& key, const std::string& expected,
                                     const std::string& desired) {
  return single(ask(pack(request(Request::kCompareSet, {key, expected, desired})), kAnswerNs));
}

bool StoreClient::erase(const std::string& key) {
  return number(ask(pack(request(Request::kErase, {key})), kAnswerNs)) != 0;
}

int64_t StoreClient::size() { return number(ask(pack(request(Request::kSize, {})), kAnswerNs)); }

bool StoreClient::wait(const std::vector<std::string>& keys, int64_t timeout_ns) {
  std::vector<std::string> arguments = {std::to_string(timeout_ns)};
  arguments.insert(arguments.end(), keys.begin(), keys.end());
  const auto answer =
      unpack(ask(pack(request(Request::kWait, std::move(arguments))), timeout_ns + kAnswerNs));
  if (answer && answer->size() == 2) throw base::RunError(answer->back());
  return answer && !answer->empty() && answer->front() == "1";
}

}  // namespace sluice::transport
