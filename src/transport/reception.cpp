#include "transport/reception.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"

namespace sluice::transport {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kMagic[8] = {'s', 'l', 'u', 'i', 'c', 'e', ' ', '1'};
constexpr size_t kNonceBytes = 16;
constexpr std::chrono::milliseconds kRest(100);  // pause in accepting when no descriptors are left

struct Challenge {
  char magic[sizeof kMagic];
  char nonce[kNonceBytes];
};

struct Answer {
  char nonce[kNonceBytes];
  int32_t rank = 0;
  int32_t world_size = 0;
  char proof[kProofBytes];
};

enum class Verdict : uint32_t { kWelcome, kAnotherRun, kAnotherWorldSize, kTwice };

struct Reply {
  Verdict verdict = Verdict::kWelcome;
  int32_t world_size = 0;  // the run's, sent only to processes that know its key
  char proof[kProofBytes] = {};
};

// The statement that a side proves knowledge of the key for. `side` makes the two sides' statements differ.
std::string statement(const std::string& purpose, const char* side, const Challenge& challenge,
                      const Answer& answer) {
  return base::CanonicalBytes()
      .add(purpose)
      .add(side)
      .add(std::string_view(challenge.nonce, kNonceBytes))
      .add(std::string_view(answer.nonce, kNonceBytes))
      .add(answer.rank)
      .add(answer.world_size)
      .bytes();
}

constexpr const char* kNewcomer = "newcomer";
constexpr const char* kHost = "host";

Challenge parse_challenge(const std::string& bytes) {
  Challenge challenge;
  std::memcpy(&challenge, bytes.data(), sizeof challenge);
  return challenge;
}

std::string new_challenge() {
  const std::string nonce = random_bytes(kNonceBytes);
  return std::string(kMagic, sizeof kMagic) + nonce;
}

}  // namespace

Reception::Reception(std::vector<Socket> listeners, RunKey key, std::string purpose, Options options)
    : listeners_(std::move(listeners)),
      key_(std::move(key)),
      purpose_(std::move(purpose)),
      options_(options) {
  for (const Socket& listener : listeners_) never_block(listener);
}

void Reception::close() {
  listeners_.clear();
  newcomers_.clear();
}

void Reception::watch(std::vector<pollfd>& entries) const {
  if (Clock::now() >= resume_accepting_) {
    for (const Socket& listener : listeners_) entries.push_back({listener.fd(), POLLIN, 0});
  }
  for (const Newcomer& newcomer : newcomers_) entries.push_back({newcomer.socket.fd(), POLLIN, 0});
}

int64_t Reception::patience_ns() const {
  const Clock::time_point now = Clock::now();
  Clock::time_point next = now + std::chrono::hours(1);
  if (resume_accepting_ > now) next = resume_accepting_;
  for (const Newcomer& newcomer : newcomers_) next = std::min(next, newcomer.deadline);
  return std::max<int64_t>(0, std::chrono::nanoseconds(next - now).count());
}

void Reception::accept_newcomers() {
  for (const Socket& listener : listeners_) {
    while (Clock::now() >= resume_accepting_ && accept_at(listener)) {
    }
  }
}

// Whether a connection was accepted.
bool Reception::accept_at(const Socket& listener) {
  Socket socket = accept_from(listener);
  if (!socket.is_open()) {
    if (out_of_descriptors(errno)) resume_accepting_ = Clock::now() + kRest;
    return false;
  }
  Newcomer newcomer{std::move(socket), new_challenge(), "",
                    Clock::now() + std::chrono::nanoseconds(options_.answer_ns)};
  const auto& challenge = newcomer.challenge;
  if (!write_all(newcomer.socket, challenge.data(), static_cast<int64_t>(challenge.size()))) return true;
  const size_t most = static_cast<size_t>(key_.world_size + options_.most_strangers);
  if (newcomers_.size() == most) newcomers_.erase(newcomers_.begin());
  newcomers_.push_back(std::move(newcomer));
  return true;
}

std::vector<Guest> Reception::serve() {
  accept_newcomers();
  std::vector<Guest> guests;
  const Clock::time_point now = Clock::now();
  std::erase_if(newcomers_,
                [&](Newcomer& newcomer) { return answer(newcomer, guests) || now >= newcomer.deadline; });
  return guests;
}

// Returns true when the newcomer is finished: admitted, refused, or gone.
bool Reception::answer(Newcomer& newcomer, std::vector<Guest>& guests) {
  char buffer[sizeof(Answer)];
  const ssize_t got =
      recv(newcomer.socket.fd(), buffer, sizeof buffer - newcomer.received.size(), MSG_DONTWAIT);
  if (got < 0) return errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
  if (got == 0) return true;
  newcomer.received.append(buffer, static_cast<size_t>(got));
  if (newcomer.received.size() < sizeof(Answer)) return false;

  Answer answer;
  std::memcpy(&answer, newcomer.received.data(), sizeof answer);
  const Challenge challenge = parse_challenge(newcomer.challenge);
  const std::string stated = proof_of(key_, statement(purpose_, kNewcomer, challenge, answer));
  Reply reply;
  if (!same_proof(stated, std::string(answer.proof, kProofBytes))) {
    reply.verdict = Verdict::kAnotherRun;
  } else if (answer.world_size != key_.world_size) {
    reply.verdict = Verdict::kAnotherWorldSize;
    reply.world_size = key_.world_size;
  } else if (answer.rank < 0 || answer.rank >= key_.world_size || !let_in_.insert(answer.rank).second) {
    reply.verdict = Verdict::kTwice;
  } else {
    const std::string proof = proof_of(key_, statement(purpose_, kHost, challenge, answer));
    std::memcpy(reply.proof, proof.data(), kProofBytes);
  }
  if (!write_all(newcomer.socket, &reply, sizeof reply)) {
    if (reply.verdict == Verdict::kWelcome) let_in_.erase(answer.rank);
  } else if (reply.verdict == Verdict::kWelcome) {
    guests.push_back({answer.rank, std::move(newcomer.socket)});
  }
  return true;
}

namespace {

class Visitor {
 public:
  Visitor(const std::string& address, int port, const RunKey& key, const std::string& purpose, int rank)
      : address_(address), port_(port), key_(key), purpose_(purpose), rank_(rank) {}

  // Whether this rank was admitted. False if the connection ended before: the host dropped it in a crowd.
  bool ask(const Socket& socket, int64_t timeout_ns) {
    Challenge challenge;
    if (!read_all(socket, &challenge, sizeof challenge, timeout_ns)) return false;
    if (std::memcmp(challenge.magic, kMagic, sizeof kMagic) != 0) {
      throw base::RunError(base::text("what listens at ", place(), " is no rank of Sluice: set MASTER_ADDR ",
                                      "and MASTER_PORT to rank 0's, at a port that is free there"));
    }
    Answer answer{.rank = rank_, .world_size = key_.world_size};
    std::memcpy(answer.nonce, random_bytes(kNonceBytes).data(), kNonceBytes);
    const std::string proof = proof_of(key_, statement(purpose_, kNewcomer, challenge, answer));
    std::memcpy(answer.proof, proof.data(), kProofBytes);
    Reply reply;
    if (!write_all(socket, &answer, sizeof answer) || !read_all(socket, &reply, sizeof reply, timeout_ns)) {
      return false;
    }
    const std::string host = proof_of(key_, statement(purpose_, kHost, challenge, answer));
    judge(reply, same_proof(host, std::string(reply.proof, kProofBytes)));
    return true;
  }

 private:
  std::string place() const { return base::text(address_, " port ", port_); }

  // Returns if this rank was admitted by a process that knows the key; otherwise throws RunError.
  void judge(const Reply& reply, bool proved) const {
    if (reply.verdict == Verdict::kWelcome && proved) return;
    if (reply.verdict == Verdict::kTwice) {
      throw base::RunError(base::text("two processes claim rank ", rank_, " of ", key_.world_size,
                                      ": the other one has joined at ", place(), " already"));
    }
    if (reply.verdict == Verdict::kAnotherWorldSize) {
      throw base::RunError(base::text("rank ", rank_, " of ", key_.world_size, " met a run of ",
                                      reply.world_size, " ranks at ", place(),
                                      ": end the other run, or set another MASTER_PORT"));
    }
    throw base::RunError(base::text("another run listens at ", place(), ": rank ", rank_, " of ",
                                    key_.world_size,
                                    " has another SLUICE_SECRET or job: give all ranks of a run the same "
                                    "secret, and each run its own MASTER_PORT"));
  }

  const std::string& address_;
  int port_;
  const RunKey& key_;
  const std::string& purpose_;
  int rank_;
};

}  // namespace

Socket enter(const std::string& address, int port, const RunKey& key, const std::string& purpose, int rank,
             int64_t timeout_ns) {
  const Clock::time_point deadline = Clock::now() + std::chrono::nanoseconds(timeout_ns);
  const auto left_ns = [&] {
    return std::max<int64_t>(0, std::chrono::nanoseconds(deadline - Clock::now()).count());
  };
  Visitor visitor(address, port, key, purpose, rank);
  while (true) {
    Socket socket = connect_to(address, port, left_ns());
    if (visitor.ask(socket, left_ns())) return socket;
    if (left_ns() == 0) {
      throw Unreachable(base::text("nobody answered at ", address, " port ", port, " within ",
                                   base::human_duration(timeout_ns)));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace sluice::transport
