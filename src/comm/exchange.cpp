#include "comm/exchange.h"

#include <cstddef>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace sluice::comm {
namespace {

using Buffer = std::vector<std::byte>;

class Finished final : public Pending {
 public:
  void wait() override {}
};

// memcpy forbids null pointers even if it copies nothing.
void copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

const std::byte* at(const void* data, int64_t offset) { return static_cast<const std::byte*>(data) + offset; }
std::byte* at(void* data, int64_t offset) { return static_cast<std::byte*>(data) + offset; }

// The offset of each part if parts lie end to end.
std::vector<int64_t> offsets_of(std::span<const int64_t> sizes) {
  std::vector<int64_t> offsets(sizes.size(), 0);
  for (size_t i = 1; i < sizes.size(); ++i) offsets[i] = offsets[i - 1] + sizes[i - 1];
  return offsets;
}

const char* kind_of(std::span<const Message> messages) {
  if (messages.size() != 1) return "exchange";
  return messages[0].send != nullptr ? "send" : "receive";
}

}  // namespace

PendingPtr finished() { return std::make_unique<Finished>(); }

class StagingPool {
 public:
  Buffer take(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    Buffer buffer;
    if (!free_.empty()) {
      buffer = std::move(free_.back());
      free_.pop_back();
    }
    if (buffer.size() < static_cast<size_t>(bytes)) buffer.resize(static_cast<size_t>(bytes));
    return buffer;
  }

  void give_back(Buffer buffer) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(buffer));
  }

 private:
  std::mutex mutex_;
  std::vector<Buffer> free_;
};

namespace {

// The sum that reduce_scatter computes once all parts have arrived. `staging` has a place for every member;
// this member's place is unused, because its part is read from `own`.
struct Reduction {
  const void* own = nullptr;
  void* receive = nullptr;
  int64_t count = 0;
  DType dtype = DType::kFloat32;
  int rank = 0;
  int size = 0;
};

class PendingSum final : public Pending {
 public:
  PendingSum(PendingPtr transfer, const Reduction& reduction, Buffer staging,
             std::shared_ptr<StagingPool> pool)
      : transfer_(std::move(transfer)),
        reduction_(reduction),
        staging_(std::move(staging)),
        pool_(std::move(pool)) {}

  void wait() override {
    if (transfer_ == nullptr) return;
    transfer_->wait();
    awaited_ = transfer_->awaited_peer();
    transfer_ = nullptr;
    const int64_t bytes = reduction_.count * size_of(reduction_.dtype);
    copy(reduction_.receive, part(0, bytes), bytes);
    for (int member = 1; member < reduction_.size; ++member) {
      accumulate(reduction_.receive, part(member, bytes), reduction_.count, reduction_.dtype);
    }
    pool_->give_back(std::move(staging_));
  }
  int awaited_peer() const override { return awaited_; }

 private:
  const void* part(int member, int64_t bytes) const {
    return member == reduction_.rank ? reduction_.own : staging_.data() + member * bytes;
  }

  PendingPtr transfer_;
  Reduction reduction_;
  Buffer staging_;
  std::shared_ptr<StagingPool> pool_;
  int awaited_ = -1;
};

}  // namespace

ExchangeCommunicator::ExchangeCommunicator(std::string name, std::vector<int> ranks, int rank)
    : Communicator(std::move(name), std::move(ranks), rank), pool_(std::make_shared<StagingPool>()) {}

ExchangeCommunicator::~ExchangeCommunicator() = default;

PendingPtr ExchangeCommunicator::post_collective(const char* kind, const std::vector<Message>& messages) {
  const Operation operation{.kind = kind, .position = issued_++, .collective = true};
  if (messages.empty()) return finished();
  return post(operation, messages);
}

PendingPtr ExchangeCommunicator::all_gather(const void* send, void* receive, int64_t bytes) {
  std::vector<Message> messages;
  for (int distance = 1; distance < size() && bytes > 0; ++distance) {
    const int to = (rank() + distance) % size();
    const int from = (rank() + size() - distance) % size();
    messages.push_back({.receive = at(receive, from * bytes), .bytes = bytes, .peer = from});
    messages.push_back({.send = send, .bytes = bytes, .peer = to});
  }
  PendingPtr pending = post_collective("all_gather", messages);
  copy(at(receive, rank() * bytes), send, bytes);
  return pending;
}

PendingPtr ExchangeCommunicator::all_to_all(const void* send, std::span<const int64_t> send_bytes,
                                            void* receive, std::span<const int64_t> receive_bytes) {
  const auto members = static_cast<size_t>(size());
  const auto self = static_cast<size_t>(rank());
  SLUICE_ASSERT(send_bytes.size() == members && receive_bytes.size() == members,
                base::text("all_to_all on '", name(), "' needs ", members, " sizes on both sides"));
  SLUICE_ASSERT(send_bytes[self] == receive_bytes[self],
                base::text("all_to_all on '", name(), "': a member's part for itself has two sizes"));
  const std::vector<int64_t> send_offsets = offsets_of(send_bytes);
  const std::vector<int64_t> receive_offsets = offsets_of(receive_bytes);
  std::vector<Message> messages;
  for (size_t distance = 1; distance < members; ++distance) {
    const size_t to = (self + distance) % members;
    const size_t from = (self + members - distance) % members;
    if (receive_bytes[from] > 0) {
      messages.push_back({.receive = at(receive, receive_offsets[from]),
                          .bytes = receive_bytes[from],
                          .peer = static_cast<int>(from)});
    }
    if (send_bytes[to] > 0) {
      messages.push_back(
          {.send = at(send, send_offsets[to]), .bytes = send_bytes[to], .peer = static_cast<int>(to)});
    }
  }
  PendingPtr pending = post_collective("all_to_all", messages);
  copy(at(receive, receive_offsets[self]), at(send, send_offsets[self]), send_bytes[self]);
  return pending;
}

PendingPtr ExchangeCommunicator::reduce_scatter(const void* send, void* receive, int64_t count, DType dtype) {
  const int64_t bytes = count * size_of(dtype);
  Buffer staging = pool_->take(size() > 1 ? size() * bytes : 0);
  std::vector<Message> messages;
  for (int distance = 1; distance < size() && bytes > 0; ++distance) {
    const int to = (rank() + distance) % size();
    const int from = (rank() + size() - distance) % size();
    messages.push_back({.receive = at(staging.data(), from * bytes), .bytes = bytes, .peer = from});
    messages.push_back({.send = at(send, to * bytes), .bytes = bytes, .peer = to});
  }
  PendingPtr transfer = post_collective("reduce_scatter", messages);
  const Reduction reduction{.own = at(send, rank() * bytes),
                            .receive = receive,
                            .count = count,
                            .dtype = dtype,
                            .rank = rank(),
                            .size = size()};
  return std::make_unique<PendingSum>(std::move(transfer), reduction, std::move(staging), pool_);
}

PendingPtr ExchangeCommunicator::exchange(std::span<const Message> messages) {
  const Operation operation{.kind = kind_of(messages), .position = issued_++};
  std::vector<Message> filled;
  for (const Message& message : messages) {
    SLUICE_ASSERT(message.peer >= 0 && message.peer < size() && message.peer != rank(),
                  base::text(operation.kind, " on '", name(), "': member ", message.peer, " is no peer"));
    if (message.bytes > 0) filled.push_back(message);
  }
  if (filled.empty()) return finished();
  return post(operation, filled);
}

namespace {

class LoneCommunicator final : public ExchangeCommunicator {
 public:
  LoneCommunicator(const std::string& name, int rank) : ExchangeCommunicator(name, {rank}, 0) {}

 private:
  PendingPtr post(const Operation& operation, std::span<const Message> messages) override {
    SLUICE_ASSERT(messages.empty(),
                  base::text("communicator '", name(), "' has one member: ", operation.kind, " has no peer"));
    return finished();
  }
};

}  // namespace

std::unique_ptr<Communicator> lone_communicator(const std::string& name, int rank) {
  return std::make_unique<LoneCommunicator>(name, rank);
}

}  // namespace sluice::comm
