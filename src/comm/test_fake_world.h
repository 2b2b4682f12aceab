// Internals of the fake: posted operations and waiting threads. Included by fake*.cpp only.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "comm/test_fake_options.h"
#include "comm/transport.h"

namespace sluice::comm::fake {

using Clock = std::chrono::steady_clock;

enum class Kind : uint8_t { kExchange, kAllGather, kAllToAll, kReduceScatter };

// One message of an exchange. `ordinal` counts the messages from its sender to its receiver.
struct PostedMessage {
  Message message;
  int64_t ordinal = 0;
  bool matched = false;
};

struct Operation {
  Kind kind = Kind::kExchange;
  int member = 0;
  int64_t position = 0;  // number of operations that this member issued on the communicator before
  bool done = false;
  std::condition_variable ended;  // who waits for it is woken alone, when it is done or everything failed

  std::vector<PostedMessage> parts;  // exchange
  size_t unfinished_parts = 0;

  int64_t collective = 0;  // number of this collective on the communicator
  bool matched = false;
  const void* send = nullptr;
  void* receive = nullptr;
  int64_t count = 0;  // all_gather: bytes; reduce_scatter: elements
  DType dtype = DType::kFloat32;
  std::vector<int64_t> send_bytes;
  std::vector<int64_t> receive_bytes;
};
using OperationPtr = std::shared_ptr<Operation>;

struct Member {
  bool joined = false;
  int64_t issued = 0;
  int64_t collectives = 0;
  std::deque<OperationPtr> queue;  // posted and not done, oldest first
};

// One direction between two members: the messages posted by the side that is ahead.
struct Pair {
  int64_t sends = 0;
  int64_t receives = 0;
  std::deque<std::pair<int64_t, int64_t>> ahead;  // (bytes, position)
};

struct Channel {
  std::string name;
  int id = 0;
  std::vector<int> ranks;
  std::vector<Member> members;
  std::vector<OperationPtr> first_of_collective;  // by collective: the operation that was issued first
  std::map<std::pair<int, int>, Pair> pairs;      // by (sender, receiver)
  uint64_t transfers = 0;
};

// A matched transfer that ends at `end`: a collective (all queues' heads), or one message of an exchange.
struct Transfer {
  Clock::time_point end;
  uint64_t number = 0;
  Channel* channel = nullptr;
  OperationPtr sender;  // null for a collective
  OperationPtr receiver;
  Message from;
  Message to;

  bool operator>(const Transfer& other) const {
    return std::pair(end, number) > std::pair(other.end, other.number);
  }
};

struct Wait {
  int rank = 0;
  const Channel* channel = nullptr;
  Operation* operation = nullptr;
};

// The threads of one rank.
struct Threads {
  int registered = 0;
  bool ever = false;
  int waiting = 0;
};

// The operation without the rank: "'p2p' #3 receive from 1".
std::string describe(const Channel& channel, const Operation& operation);

// All methods are thread-safe.
class World {
 public:
  World(int world_size, FakeOptions options);

  int world_size() const { return static_cast<int>(threads_.size()); }
  Channel* join(int rank, const std::string& name, const std::vector<int>& ranks);
  void issue(Channel& channel, const OperationPtr& operation);
  void wait(const Channel& channel, Operation& operation);
  void abandon(const Channel& channel, const Operation& operation);
  void enter(int rank);
  void leave(int rank);

 private:
  // All functions below REQUIRE that the lock is held.
  void check_join_order(int rank, const Channel& channel);
  void check_collective(Channel& channel, const OperationPtr& operation);
  void check_parts(Channel& channel, Operation& operation);
  void check_all_to_all(const Channel& channel);
  void match(Channel& channel);
  void match_collective(Channel& channel);
  void match_parts(Channel& channel, const OperationPtr& sender);
  void start(Transfer transfer);
  void settle();
  void wake_all();
  void finish(const Transfer& transfer);
  void finish_operation(Channel& channel, Operation& operation);
  void look_for_deadlock();
  void fail(const std::string& message);
  void throw_if_failed() const;

  const FakeOptions options_;
  std::mutex mutex_;
  std::string failure_;
  std::map<std::string, std::unique_ptr<Channel>> channels_;
  std::map<std::pair<int, int>, std::vector<int>> shared_order_;  // channel ids that two ranks share
  std::map<std::pair<int, int>, size_t> shared_joined_;           // (rank, other) -> number that rank joined
  std::vector<Threads> threads_;                                  // by rank
  std::list<Wait> waits_;
  std::priority_queue<Transfer, std::vector<Transfer>, std::greater<>> in_flight_;
  uint64_t started_ = 0;
};

// Describes why some waits can never end; "" if all can. A wait can end if every member that it needs has
// posted its part, or has a thread that may still post it.
std::string find_deadlock(const std::map<std::string, std::unique_ptr<Channel>>& channels,
                          const std::list<Wait>& waits, const std::vector<Threads>& threads);

}  // namespace sluice::comm::fake
