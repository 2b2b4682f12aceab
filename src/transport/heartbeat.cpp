#include "transport/heartbeat.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "transport/reception.h"
#include "transport/socket.h"

namespace sluice::transport {

using Clock = std::chrono::steady_clock;

// Not in an unnamed namespace, because members of Heartbeat::Watch have these types.
namespace heartbeat {

enum class Sign : uint32_t { kAlive, kGoodbye, kLost, kFailed };

// The fixed part of a message; `text_bytes` bytes of text follow it.
struct Header {
  Sign sign = Sign::kAlive;
  uint8_t at_work = 0;         // kAlive: the sender is at work
  uint8_t others_at_work = 0;  // kAlive from a hub: some rank connected to the hub is at work
  int32_t rank = 0;            // kLost, kFailed: the rank concerned
  int32_t exit_status = 0;     // kFailed
  uint32_t text_bytes = 0;
};

// Data that every rank sends to all others at the start.
struct PeerCard {
  char host[256] = "";
  char address[256] = "";
  int64_t process = 0;
  int64_t port = 0;  // its listener's, on a hub
};

struct Peer {
  int rank = 0;
  Socket socket;
  std::string received;  // an incomplete message
  Clock::time_point heard;
  bool left = false;            // has sent kGoodbye
  bool at_work = false;         // according to its last sign of life
  bool others_at_work = false;  // known to a hub
};

}  // namespace heartbeat

namespace {

using heartbeat::Header;
using heartbeat::Peer;
using heartbeat::PeerCard;
using heartbeat::Sign;

constexpr const char* kBeatPurpose = "heartbeat";
constexpr int kHubs = 2;
constexpr uint32_t kLongestText = 4096;

void put(char (&field)[256], const std::string& text) { std::strncpy(field, text.c_str(), sizeof field - 1); }

std::string encode(Header header, const std::string& text) {
  const std::string cut = text.substr(0, kLongestText);
  header.text_bytes = static_cast<uint32_t>(cut.size());
  std::string message(sizeof header, '\0');
  std::memcpy(message.data(), &header, sizeof header);
  return message + cut;
}

std::string encode(const LostRank& loss) {
  const Sign sign = loss.reported ? Sign::kFailed : Sign::kLost;
  return encode({.sign = sign, .rank = loss.rank, .exit_status = loss.exit_status}, loss.text);
}

std::vector<PeerCard> exchange_cards(comm::Communicator& control, const std::string& address,
                                     const Socket& listener) {
  PeerCard mine;
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  put(mine.host, host);
  put(mine.address, address);
  mine.process = getpid();
  if (listener.is_open()) mine.port = port_of(listener);
  std::vector<PeerCard> cards(static_cast<size_t>(control.size()));
  control.all_gather(&mine, cards.data(), sizeof mine)->wait();
  return cards;
}

}  // namespace

class Heartbeat::Watch {
 public:
  Watch(comm::Communicator& control, HeartbeatOptions options)
      : options_(std::move(options)), rank_(control.rank()), wake_(eventfd(0, EFD_CLOEXEC)) {
    if (control.size() == 1) return;
    Socket listener;
    if (rank_ < kHubs) listener = listen_at(options_.address);
    cards_ = exchange_cards(control, options_.address, listener);
    for (int hub = 0; hub < std::min(kHubs, rank_); ++hub) connect_to_hub(hub);
    if (listener.is_open()) receive_the_others(std::move(listener));
    thread_ = std::thread([this] { run(); });
  }

  ~Watch() {
    stopping_ = true;
    const uint64_t one = 1;
    static_cast<void>(!write(wake_.fd(), &one, sizeof one));
    if (thread_.joinable()) thread_.join();
  }

  void goodbye() {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    broadcast(encode({.sign = Sign::kGoodbye, .rank = rank_}, ""));
  }

  void report_failure(const std::string& reason, int exit_status) {
    const std::lock_guard lock(mutex_);
    if (loss_ || cards_.empty()) return;  // the others already know of an earlier loss
    ending_ = true;
    broadcast(encode({rank_, base::text(name_of(rank_), " failed: ", reason), true, exit_status}));
  }

  bool others_at_work() const {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(
        peers_, [](const Peer& peer) { return !peer.left && (peer.at_work || peer.others_at_work); });
  }

  std::optional<LostRank> wait_for_loss(int64_t timeout_ns) const {
    std::unique_lock lock(mutex_);
    lost_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [&] { return loss_.has_value(); });
    return loss_;
  }

 private:
  std::string name_of(int rank) const {
    const PeerCard& card = cards_[static_cast<size_t>(rank)];
    return base::text("rank ", rank, " (process ", card.process, " on ", card.host, ")");
  }

  void connect_to_hub(int hub) {
    const PeerCard& card = cards_[static_cast<size_t>(hub)];
    const int port = static_cast<int>(card.port);
    add({.rank = hub,
         .socket = enter(card.address, port, options_.key, kBeatPurpose, rank_, options_.join_timeout_ns)});
  }

  // On a hub: waits until all ranks of higher number have connected.
  void receive_the_others(Socket listener) {
    Reception reception(only(std::move(listener)), options_.key, kBeatPurpose, {});
    const Clock::time_point deadline = Clock::now() + std::chrono::nanoseconds(options_.join_timeout_ns);
    while (true) {
      for (Guest& guest : reception.serve()) add({.rank = guest.rank, .socket = std::move(guest.socket)});
      if (peers_.size() == cards_.size() - 1) return;
      const int64_t left_ns = std::chrono::nanoseconds(deadline - Clock::now()).count();
      if (left_ns <= 0) throw_missing();
      std::vector<pollfd> entries;
      reception.watch(entries);
      const int64_t pause_ms = std::min(left_ns, reception.patience_ns()) / 1'000'000 + 1;
      poll(entries.data(), entries.size(), static_cast<int>(pause_ms));
    }
  }

  [[noreturn]] void throw_missing() const {
    std::vector<std::string> missing;
    for (int rank = rank_ + 1; rank < static_cast<int>(cards_.size()); ++rank) {
      const auto is_it = [rank](const Peer& peer) { return peer.rank == rank; };
      if (std::ranges::none_of(peers_, is_it)) missing.push_back(name_of(rank));
    }
    throw base::RunError(base::text("no heartbeat from ", base::join(missing, ", "), " within ",
                                    base::human_duration(options_.join_timeout_ns)));
  }

  void add(Peer peer) {
    peer.heard = Clock::now();
    peers_.push_back(std::move(peer));
  }

  // REQUIRES: the lock is held. Failed writes are ignored: the peer's end is noticed when reading from it.
  void broadcast(const std::string& message) {
    for (const Peer& peer : peers_) {
      if (peer.socket.is_open()) {
        static_cast<void>(write_all(peer.socket, message.data(), static_cast<int64_t>(message.size())));
      }
    }
  }

  void run() {
    const auto beat = std::chrono::nanoseconds(options_.beat_ns);
    Clock::time_point next_beat = Clock::now();
    while (!stopping_) {
      const Clock::time_point woken = wait_until(next_beat);
      // If this process itself was suspended, it cannot tell which peers were silent.
      const bool slept = woken > next_beat + std::chrono::nanoseconds(options_.silence_ns) / 2;
      std::unique_lock lock(mutex_);
      const std::optional<LostRank> found = listen(slept);
      if (woken >= next_beat) {
        broadcast(sign_of_life());
        next_beat = woken + beat;
      }
      if (!found || loss_ || ending_) continue;
      loss_ = found;
      broadcast(encode(*found));
      lost_.notify_all();
      lock.unlock();
      if (options_.on_lost) options_.on_lost(*found);
    }
  }

  // REQUIRES: the lock is held. A hub reports only ranks that signalled to it directly, without the other
  // hub's news: two hubs repeating each other's news would never stop.
  std::string sign_of_life() const {
    Header header{.sign = Sign::kAlive, .rank = rank_};
    header.at_work = options_.at_work && options_.at_work() ? 1 : 0;
    const auto works = [](const Peer& peer) { return !peer.left && peer.at_work; };
    header.others_at_work = std::ranges::any_of(peers_, works) ? 1 : 0;
    return encode(header, "");
  }

  Clock::time_point wait_until(Clock::time_point next_beat) {
    std::vector<pollfd> entries = {{wake_.fd(), POLLIN, 0}};
    for (const Peer& peer : peers_) {
      if (peer.socket.is_open()) entries.push_back({peer.socket.fd(), POLLIN, 0});
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_beat - Clock::now()).count();
    poll(entries.data(), entries.size(), static_cast<int>(std::max<int64_t>(left, 0)));
    return Clock::now();
  }

  // Reads from all peers. News goes first: a rank that ended because of a loss sent that news before.
  std::optional<LostRank> listen(bool slept) {
    std::optional<LostRank> news;
    std::optional<LostRank> ended;
    std::optional<LostRank> silent;
    const Clock::time_point now = Clock::now();
    for (Peer& peer : peers_) {
      if (!peer.socket.is_open()) continue;
      if (slept) peer.heard = now;
      const bool open = read_from(peer, now);
      std::optional<LostRank> told = parse(peer);
      if (told && !news) news = std::move(told);
      if (!open) {
        peer.socket.close();
        if (!peer.left && !ended) ended = loss_of(peer.rank, "its connection closed");
      } else if (!peer.left && now - peer.heard > std::chrono::nanoseconds(options_.silence_ns) && !silent) {
        silent =
            loss_of(peer.rank, base::text("no sign of life for ", base::human_duration(options_.silence_ns)));
      }
    }
    if (news) return news;
    return ended ? ended : silent;
  }

  LostRank loss_of(int rank, const std::string& reason) const {
    return {.rank = rank, .text = base::text(name_of(rank), " was lost: ", reason)};
  }

  // Returns false at end-of-file or error.
  static bool read_from(Peer& peer, Clock::time_point now) {
    char buffer[4096];
    while (true) {
      const ssize_t got = recv(peer.socket.fd(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (got > 0) {
        peer.received.append(buffer, static_cast<size_t>(got));
        peer.heard = now;
      } else if (got == 0) {
        return false;
      } else if (errno != EINTR) {
        return errno == EAGAIN || errno == EWOULDBLOCK;
      }
    }
  }

  // Parses all complete messages. Returns the first loss among them, if any.
  static std::optional<LostRank> parse(Peer& peer) {
    std::optional<LostRank> loss;
    Header header;
    while (peer.received.size() >= sizeof header) {
      std::memcpy(&header, peer.received.data(), sizeof header);
      SLUICE_ASSERT(header.text_bytes <= kLongestText, "a heartbeat's message is too long");
      if (peer.received.size() < sizeof header + header.text_bytes) break;
      if (header.sign == Sign::kGoodbye) peer.left = true;
      if (header.sign == Sign::kAlive) {
        peer.at_work = header.at_work != 0;
        peer.others_at_work = header.others_at_work != 0;
      }
      const bool reported = header.sign == Sign::kFailed;
      if ((header.sign == Sign::kLost || reported) && !loss) {
        loss = LostRank{header.rank, peer.received.substr(sizeof header, header.text_bytes), reported,
                        header.exit_status};
      }
      peer.received.erase(0, sizeof header + header.text_bytes);
    }
    return loss;
  }

  const HeartbeatOptions options_;
  const int rank_;
  Socket wake_;
  std::vector<PeerCard> cards_;  // by rank
  std::vector<Peer> peers_;      // changed by the thread under the lock
  std::atomic<bool> stopping_ = false;

  mutable std::mutex mutex_;  // guards writes to sockets and the members below
  mutable std::condition_variable lost_;
  std::optional<LostRank> loss_;
  bool ending_ = false;
  std::thread thread_;
};

Heartbeat::Heartbeat(comm::Communicator& control, HeartbeatOptions options)
    : watch_(std::make_unique<Watch>(control, std::move(options))) {}

Heartbeat::~Heartbeat() = default;

void Heartbeat::goodbye() { watch_->goodbye(); }

void Heartbeat::report_failure(const std::string& reason, int exit_status) {
  watch_->report_failure(reason, exit_status);
}

bool Heartbeat::others_at_work() const { return watch_->others_at_work(); }

std::optional<LostRank> Heartbeat::lost() const { return watch_->wait_for_loss(0); }

std::optional<LostRank> Heartbeat::wait_for_lost_rank(int64_t timeout_ns) const {
  return watch_->wait_for_loss(timeout_ns);
}

}  // namespace sluice::transport
