#include "comm/test_fake_world.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"

namespace sluice::comm::fake {
namespace {

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kExchange: return "exchange";
    case Kind::kAllGather: return "all_gather";
    case Kind::kAllToAll: return "all_to_all";
    case Kind::kReduceScatter: return "reduce_scatter";
  }
  return "?";
}

std::string describe(const Channel& channel, const Message& message) {
  const int rank = channel.ranks[static_cast<size_t>(message.peer)];
  return message.send != nullptr ? base::text("send to ", rank) : base::text("receive from ", rank);
}

void copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

std::byte* at(void* data, int64_t offset) { return static_cast<std::byte*>(data) + offset; }
const std::byte* at(const void* data, int64_t offset) { return static_cast<const std::byte*>(data) + offset; }

void run_all_gather(const std::vector<OperationPtr>& members) {
  for (const OperationPtr& to : members) {
    for (const OperationPtr& from : members) {
      copy(at(to->receive, from->member * from->count), from->send, from->count);
    }
  }
}

void run_all_to_all(const std::vector<OperationPtr>& members) {
  for (const OperationPtr& from : members) {
    int64_t send_offset = 0;
    for (const OperationPtr& to : members) {
      int64_t receive_offset = 0;
      for (int i = 0; i < from->member; ++i) receive_offset += to->receive_bytes[static_cast<size_t>(i)];
      const int64_t bytes = from->send_bytes[static_cast<size_t>(to->member)];
      copy(at(to->receive, receive_offset), at(from->send, send_offset), bytes);
      send_offset += bytes;
    }
  }
}

void run_reduce_scatter(const std::vector<OperationPtr>& members) {
  for (const OperationPtr& to : members) {
    const int64_t offset = to->member * to->count * size_of(to->dtype);
    copy(to->receive, at(members[0]->send, offset), to->count * size_of(to->dtype));
    for (size_t i = 1; i < members.size(); ++i) {
      accumulate(to->receive, at(members[i]->send, offset), to->count, to->dtype);
    }
  }
}

std::string sizes_of(const Operation& operation) {
  switch (operation.kind) {
    case Kind::kAllGather: return base::text(" of ", operation.count, " bytes");
    case Kind::kReduceScatter:
      return base::text(" of ", operation.count, " ", comm::name_of(operation.dtype));
    default: return "";
  }
}

}  // namespace

std::string describe(const Channel& channel, const Operation& operation) {
  std::string what = name_of(operation.kind);
  if (operation.kind == Kind::kExchange) {
    std::vector<std::string> open;
    for (const PostedMessage& part : operation.parts) {
      if (!part.matched) open.push_back(describe(channel, part.message));
    }
    if (!open.empty()) what = base::join(open, " and ");
  }
  return base::text("'", channel.name, "' #", operation.position, " ", what);
}

World::World(int world_size, FakeOptions options)
    : options_(options), threads_(static_cast<size_t>(world_size)) {}

void World::fail(const std::string& message) {
  if (failure_.empty()) failure_ = message;
  wake_all();
}

void World::wake_all() {
  for (const Wait& wait : waits_) wait.operation->ended.notify_all();
}

void World::throw_if_failed() const {
  if (!failure_.empty()) throw base::RunError(failure_);
}

void World::enter(int rank) {
  const std::lock_guard lock(mutex_);
  Threads& threads = threads_.at(static_cast<size_t>(rank));
  ++threads.registered;
  threads.ever = true;
}

void World::leave(int rank) {
  const std::lock_guard lock(mutex_);
  --threads_.at(static_cast<size_t>(rank)).registered;
  look_for_deadlock();
}

void World::abandon(const Channel& channel, const Operation& operation) {
  const std::lock_guard lock(mutex_);
  if (operation.done) return;
  const int rank = channel.ranks[static_cast<size_t>(operation.member)];
  fail(base::text("rank ", rank, " abandoned ", describe(channel, operation), " before it ended"));
}

void World::look_for_deadlock() {
  if (!failure_.empty()) return;
  const std::string report = find_deadlock(channels_, waits_, threads_);
  if (!report.empty()) fail(report);
}

Channel* World::join(int rank, const std::string& name, const std::vector<int>& ranks) {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  SLUICE_ASSERT(
      std::is_sorted(ranks.begin(), ranks.end()) && ranks.front() >= 0 && ranks.back() < world_size(),
      base::text("ranks of communicator '", name, "' must ascend within the world"));
  const auto position = std::find(ranks.begin(), ranks.end(), rank);
  SLUICE_ASSERT(position != ranks.end(), base::text("rank ", rank, " is no member of '", name, "'"));
  std::unique_ptr<Channel>& channel = channels_[name];
  if (channel == nullptr) {
    channel = std::make_unique<Channel>();
    channel->name = name;
    channel->id = static_cast<int>(channels_.size());
    channel->ranks = ranks;
    channel->members.resize(ranks.size());
  }
  Member* member = channel->ranks == ranks ? &channel->members[position - ranks.begin()] : nullptr;
  if (member == nullptr) {
    fail(base::text("rank ", rank, " makes communicator '", name, "' with other ranks than its members do"));
  } else if (member->joined) {
    fail(base::text("rank ", rank, " makes communicator '", name, "' twice"));
  } else {
    member->joined = true;
    check_join_order(rank, *channel);
  }
  throw_if_failed();
  return channel.get();
}

void World::check_join_order(int rank, const Channel& channel) {
  for (const int other : channel.ranks) {
    if (other == rank) continue;
    std::vector<int>& order = shared_order_[std::minmax(rank, other)];
    size_t& joined = shared_joined_[{rank, other}];
    if (joined == order.size()) order.push_back(channel.id);
    if (order[joined++] != channel.id) {
      fail(base::text("ranks ", rank, " and ", other, " make their communicators in different orders: rank ",
                      rank, " makes '", channel.name, "' out of turn"));
      return;
    }
  }
}

void World::issue(Channel& channel, const OperationPtr& operation) {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  Member& member = channel.members[static_cast<size_t>(operation->member)];
  operation->position = member.issued++;
  if (operation->kind == Kind::kExchange) {
    check_parts(channel, *operation);
  } else {
    check_collective(channel, operation);
  }
  throw_if_failed();
  if (operation->kind == Kind::kExchange && operation->parts.empty()) {
    operation->done = true;
    return;
  }
  member.queue.push_back(operation);
  match(channel);
  settle();
}

void World::check_collective(Channel& channel, const OperationPtr& operation) {
  Member& member = channel.members[static_cast<size_t>(operation->member)];
  operation->collective = member.collectives++;
  const auto index = static_cast<size_t>(operation->collective);
  if (index == channel.first_of_collective.size()) channel.first_of_collective.push_back(operation);
  const Operation& first = *channel.first_of_collective[index];
  const bool same =
      first.kind == operation->kind && first.count == operation->count && first.dtype == operation->dtype;
  if (same) return;
  fail(base::text("mismatch on '", channel.name, "': rank ", channel.ranks[first.member], " issued #",
                  first.position, " ", name_of(first.kind), sizes_of(first), ", rank ",
                  channel.ranks[operation->member], " issued #", operation->position, " ",
                  name_of(operation->kind), sizes_of(*operation)));
}

void World::check_parts(Channel& channel, Operation& operation) {
  operation.unfinished_parts = operation.parts.size();
  for (PostedMessage& part : operation.parts) {
    const Message& message = part.message;
    const bool sends = message.send != nullptr || message.receive == nullptr;
    const std::pair<int, int> direction =
        sends ? std::pair(operation.member, message.peer) : std::pair(message.peer, operation.member);
    Pair& pair = channel.pairs[direction];
    int64_t& mine = sends ? pair.sends : pair.receives;
    const int64_t theirs = sends ? pair.receives : pair.sends;
    part.ordinal = mine++;
    if (part.ordinal >= theirs) {
      pair.ahead.emplace_back(message.bytes, operation.position);
      continue;
    }
    const auto [bytes, position] = pair.ahead.front();
    pair.ahead.pop_front();
    if (bytes == message.bytes) continue;
    fail(base::text("mismatch on '", channel.name, "': rank ", channel.ranks[operation.member], " issued #",
                    operation.position, " ", describe(channel, message), " of ", message.bytes,
                    " bytes, rank ", channel.ranks[message.peer], " issued #", position, " of ", bytes,
                    " bytes"));
  }
}

void World::check_all_to_all(const Channel& channel) {
  const size_t size = channel.members.size();
  for (size_t from = 0; from < size; ++from) {
    const Operation& sender = *channel.members[from].queue.front();
    for (size_t to = 0; to < size; ++to) {
      const Operation& receiver = *channel.members[to].queue.front();
      const int64_t sent = sender.send_bytes.size() == size ? sender.send_bytes[to] : -1;
      const int64_t expected = receiver.receive_bytes.size() == size ? receiver.receive_bytes[from] : -1;
      if (sent == expected && sent >= 0) continue;
      return fail(base::text("mismatch on '", channel.name, "': in all_to_all rank ", channel.ranks[from],
                             " #", sender.position, " sends ", sent, " bytes to rank ", channel.ranks[to],
                             ", which expects ", expected, " in #", receiver.position));
    }
  }
}

void World::match(Channel& channel) {
  match_collective(channel);
  for (const Member& member : channel.members) {
    if (!member.queue.empty() && member.queue.front()->kind == Kind::kExchange) {
      match_parts(channel, member.queue.front());
    }
  }
}

void World::match_collective(Channel& channel) {
  for (const Member& member : channel.members) {
    if (member.queue.empty() || member.queue.front()->kind == Kind::kExchange) return;
    if (member.queue.front()->matched) return;
  }
  if (channel.members[0].queue.front()->kind == Kind::kAllToAll) check_all_to_all(channel);
  if (!failure_.empty()) return;
  for (const Member& member : channel.members) member.queue.front()->matched = true;
  start({.channel = &channel});
}

void World::match_parts(Channel& channel, const OperationPtr& sender) {
  for (PostedMessage& part : sender->parts) {
    if (part.matched || part.message.receive != nullptr) continue;
    const Member& peer = channel.members[static_cast<size_t>(part.message.peer)];
    if (peer.queue.empty() || peer.queue.front()->kind != Kind::kExchange) continue;
    const OperationPtr& receiver = peer.queue.front();
    const auto other =
        std::find_if(receiver->parts.begin(), receiver->parts.end(), [&](const PostedMessage& candidate) {
          return candidate.message.receive != nullptr && candidate.message.peer == sender->member &&
                 candidate.ordinal == part.ordinal;
        });
    if (other == receiver->parts.end()) continue;
    part.matched = true;
    other->matched = true;
    start({.channel = &channel,
           .sender = sender,
           .receiver = receiver,
           .from = part.message,
           .to = other->message});
  }
}

void World::start(Transfer transfer) {
  Channel& channel = *transfer.channel;
  transfer.end = Clock::now();
  transfer.number = started_++;
  if (options_.max_delay_ns > 0) {
    const uint64_t bits =
        base::random_bits(options_.seed, static_cast<uint64_t>(channel.id), channel.transfers);
    transfer.end += std::chrono::nanoseconds(bits % static_cast<uint64_t>(options_.max_delay_ns + 1));
  }
  ++channel.transfers;
  in_flight_.push(std::move(transfer));
  // Waiters end transfers when their time has come; those without a delay end before this thread lets go of
  // the lock.
  if (options_.max_delay_ns > 0) wake_all();
}

// After a failure no transfer completes any more: waiters unwind and free their buffers.
void World::settle() {
  while (failure_.empty() && !in_flight_.empty() && in_flight_.top().end <= Clock::now()) {
    const Transfer transfer = in_flight_.top();
    in_flight_.pop();
    finish(transfer);
  }
}

void World::finish(const Transfer& transfer) {
  Channel& channel = *transfer.channel;
  if (transfer.sender != nullptr) {
    copy(transfer.to.receive, transfer.from.send, transfer.from.bytes);
    for (const OperationPtr& side : {transfer.sender, transfer.receiver}) {
      if (--side->unfinished_parts == 0) finish_operation(channel, *side);
    }
  } else {
    std::vector<OperationPtr> members;
    for (const Member& member : channel.members) members.push_back(member.queue.front());
    switch (members[0]->kind) {
      case Kind::kAllGather: run_all_gather(members); break;
      case Kind::kAllToAll: run_all_to_all(members); break;
      case Kind::kReduceScatter: run_reduce_scatter(members); break;
      case Kind::kExchange: break;
    }
    for (const OperationPtr& operation : members) finish_operation(channel, *operation);
  }
  match(channel);
}

void World::finish_operation(Channel& channel, Operation& operation) {
  operation.done = true;
  operation.ended.notify_all();
  channel.members[static_cast<size_t>(operation.member)].queue.pop_front();
}

void World::wait(const Channel& channel, Operation& operation) {
  std::unique_lock lock(mutex_);
  const int rank = channel.ranks[static_cast<size_t>(operation.member)];
  settle();
  if (operation.done) return;
  throw_if_failed();
  const auto wait = waits_.insert(waits_.end(), {rank, &channel, &operation});
  Threads& threads = threads_[static_cast<size_t>(rank)];
  ++threads.waiting;
  if (threads.ever && threads.waiting >= threads.registered) look_for_deadlock();

  const Clock::time_point deadline = Clock::now() + std::chrono::nanoseconds(options_.timeout_ns);
  while (!operation.done && failure_.empty()) {
    if (Clock::now() >= deadline) {
      fail(base::text("rank ", rank, " waited too long in ", describe(channel, operation)));
      break;
    }
    const Clock::time_point next = in_flight_.empty() ? deadline : std::min(deadline, in_flight_.top().end);
    operation.ended.wait_until(lock, next);
    settle();
  }
  --threads.waiting;
  waits_.erase(wait);
  if (!operation.done) throw_if_failed();
}

}  // namespace sluice::comm::fake
