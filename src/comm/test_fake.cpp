#include "comm/test_fake.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "comm/exchange.h"
#include "comm/test_fake_world.h"

namespace sluice::comm {
namespace {

using fake::Channel;
using fake::Kind;
using fake::Operation;
using fake::OperationPtr;
using fake::World;

class FakePending final : public Pending {
 public:
  FakePending(std::shared_ptr<World> world, Channel& channel, OperationPtr operation)
      : world_(std::move(world)), channel_(channel), operation_(std::move(operation)) {}
  ~FakePending() override {
    if (!waited_) world_->abandon(channel_, *operation_);
  }

  void wait() override {
    world_->wait(channel_, *operation_);
    waited_ = true;
  }

 private:
  std::shared_ptr<World> world_;
  Channel& channel_;
  OperationPtr operation_;
  bool waited_ = false;
};

class FakeCommunicator final : public Communicator {
 public:
  FakeCommunicator(std::shared_ptr<World> world, Channel& channel, int member)
      : Communicator(channel.name, channel.ranks, member), world_(std::move(world)), channel_(channel) {}

  PendingPtr all_gather(const void* send, void* receive, int64_t bytes) override {
    OperationPtr operation = make(Kind::kAllGather, send, receive);
    operation->count = bytes;
    return issue(operation);
  }

  PendingPtr all_to_all(const void* send, std::span<const int64_t> send_bytes, void* receive,
                        std::span<const int64_t> receive_bytes) override {
    OperationPtr operation = make(Kind::kAllToAll, send, receive);
    operation->send_bytes.assign(send_bytes.begin(), send_bytes.end());
    operation->receive_bytes.assign(receive_bytes.begin(), receive_bytes.end());
    return issue(operation);
  }

  PendingPtr reduce_scatter(const void* send, void* receive, int64_t count, DType dtype) override {
    OperationPtr operation = make(Kind::kReduceScatter, send, receive);
    operation->count = count;
    operation->dtype = dtype;
    return issue(operation);
  }

  PendingPtr exchange(std::span<const Message> messages) override {
    OperationPtr operation = make(Kind::kExchange, nullptr, nullptr);
    for (const Message& message : messages) {
      SLUICE_ASSERT(message.peer >= 0 && message.peer < size() && message.peer != rank(),
                    base::text("member ", message.peer, " is no peer on '", name(), "'"));
      operation->parts.push_back({.message = message});
    }
    return issue(operation);
  }

 private:
  OperationPtr make(Kind kind, const void* send, void* receive) const {
    auto operation = std::make_shared<Operation>();
    operation->kind = kind;
    operation->member = rank();
    operation->send = send;
    operation->receive = receive;
    return operation;
  }

  PendingPtr issue(const OperationPtr& operation) {
    world_->issue(channel_, operation);
    return std::make_unique<FakePending>(world_, channel_, operation);
  }

  std::shared_ptr<World> world_;
  Channel& channel_;
};

class FakeTransport final : public Transport {
 public:
  FakeTransport(std::shared_ptr<World> world, int rank) : world_(std::move(world)), rank_(rank) {}

  int rank() const override { return rank_; }
  int world_size() const override { return world_->world_size(); }

  std::unique_ptr<Communicator> communicator(const std::string& name,
                                             const std::vector<int>& ranks) override {
    Channel* channel = world_->join(rank_, name, ranks);
    if (ranks.size() == 1) return lone_communicator(name, rank_);
    const auto member = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    return std::make_unique<FakeCommunicator>(world_, *channel, static_cast<int>(member));
  }

 private:
  std::shared_ptr<World> world_;
  int rank_;
};

}  // namespace

FakeWorld::FakeWorld(int world_size, FakeOptions options)
    : world_(std::make_shared<World>(world_size, options)) {}

FakeWorld::~FakeWorld() = default;

std::unique_ptr<Transport> FakeWorld::transport(int rank) {
  return std::make_unique<FakeTransport>(world_, rank);
}

FakeWorld::Participant::Participant(FakeWorld& world, int rank) : world_(world.world_), rank_(rank) {
  world_->enter(rank_);
}

FakeWorld::Participant::~Participant() {
  if (world_ != nullptr) world_->leave(rank_);
}

}  // namespace sluice::comm
