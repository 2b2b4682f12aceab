#include <algorithm>
#include <set>

#include "base/text.h"
#include "comm/test_fake_world.h"

namespace sluice::comm::fake {
namespace {

// An operation and its place in a queue.
struct Queued {
  const Channel* channel = nullptr;
  int member = 0;
  size_t index = 0;  // in the member's queue

  const Member& owner() const { return channel->members[static_cast<size_t>(member)]; }
  const Operation& operation() const { return *owner().queue[index]; }
  int rank() const { return channel->ranks[static_cast<size_t>(member)]; }
};

bool sends(const Message& message) { return message.send != nullptr || message.receive == nullptr; }

// Whether `operation` has the counterpart of part `part` of member `member`.
bool meets(const Operation& operation, int member, const PostedMessage& part) {
  return std::any_of(operation.parts.begin(), operation.parts.end(), [&](const PostedMessage& other) {
    return other.message.peer == member && other.ordinal == part.ordinal &&
           sends(other.message) != sends(part.message);
  });
}

// Computes the operations that can end as a least fixed point; all others are stuck.
class Analysis {
 public:
  Analysis(const std::map<std::string, std::unique_ptr<Channel>>& channels, const std::list<Wait>& waits,
           const std::vector<Threads>& threads)
      : waits_(waits), threads_(threads) {
    for (const auto& [name, channel] : channels) {
      for (size_t member = 0; member < channel->members.size(); ++member) {
        for (size_t i = 0; i < channel->members[member].queue.size(); ++i) {
          places_.push_back({channel.get(), static_cast<int>(member), i});
        }
      }
    }
    for (bool grown = true; grown;) {
      grown = false;
      for (const Queued& place : places_) {
        if (!can_end(&place.operation()) && blocker_of(place).kind == Blocker::kNone) {
          grown = ending_.insert(&place.operation()).second;
        }
      }
    }
  }

  std::string report() const {
    for (const Wait& wait : waits_) {
      if (!wait.operation->done && !can_end(wait.operation)) return follow(wait);
    }
    return "";
  }

 private:
  // The obstacle to an operation: another operation that is stuck, or a rank whose threads have all left.
  struct Blocker {
    enum Kind { kNone, kOperation, kLeft } kind = kNone;
    Queued place;
    int rank = 0;
  };

  bool can_end(const Operation* operation) const { return ending_.contains(operation); }

  // Whether a thread of `rank` runs, or will run once its wait is over.
  bool can_issue(int rank) const {
    const Threads& threads = threads_[static_cast<size_t>(rank)];
    if (!threads.ever || threads.waiting < threads.registered) return true;
    return std::any_of(waits_.begin(), waits_.end(), [&](const Wait& wait) {
      return wait.rank == rank && (wait.operation->done || can_end(wait.operation));
    });
  }

  Queued place_of(const Operation* operation) const {
    return *std::find_if(places_.begin(), places_.end(),
                         [&](const Queued& place) { return &place.operation() == operation; });
  }

  // The reason why member `peer` cannot reach its `index`-th posted operation, or, if `index` is beyond
  // those, cannot issue a new one.
  Blocker before(const Channel& channel, int peer, size_t index) const {
    const Member& member = channel.members[static_cast<size_t>(peer)];
    for (size_t i = 0; i < index; ++i) {
      if (!can_end(member.queue[i].get())) return {Blocker::kOperation, {&channel, peer, i}, 0};
    }
    if (index < member.queue.size()) return {};
    const int rank = channel.ranks[static_cast<size_t>(peer)];
    if (can_issue(rank)) return {};
    for (const Wait& wait : waits_) {
      if (wait.rank == rank) return {Blocker::kOperation, place_of(wait.operation), 0};
    }
    return {Blocker::kLeft, {}, rank};
  }

  template <typename Matches>
  Blocker before_counterpart(const Channel& channel, int peer, Matches matches) const {
    const auto& queue = channel.members[static_cast<size_t>(peer)].queue;
    const auto found = std::find_if(queue.begin(), queue.end(), matches);
    return before(channel, peer, static_cast<size_t>(found - queue.begin()));
  }

  Blocker blocker_of(const Queued& place) const {
    const Operation& operation = place.operation();
    if (operation.matched) return {};
    Blocker own = before(*place.channel, place.member, place.index);
    if (own.kind != Blocker::kNone) return own;
    if (operation.kind == Kind::kExchange) return blocker_of_parts(place);
    for (int peer = 0; peer < static_cast<int>(place.channel->members.size()); ++peer) {
      const Blocker blocker = before_counterpart(*place.channel, peer, [&](const OperationPtr& other) {
        return other->kind != Kind::kExchange && other->collective == operation.collective;
      });
      if (blocker.kind != Blocker::kNone) return blocker;
    }
    return {};
  }

  Blocker blocker_of_parts(const Queued& place) const {
    for (const PostedMessage& part : place.operation().parts) {
      if (part.matched) continue;
      const Blocker blocker =
          before_counterpart(*place.channel, part.message.peer, [&](const OperationPtr& other) {
            return other->kind == Kind::kExchange && meets(*other, place.member, part);
          });
      if (blocker.kind != Blocker::kNone) return blocker;
    }
    return {};
  }

  // Follows blockers until they form a cycle or end at a rank that has left, and describes that part.
  std::string follow(const Wait& wait) const {
    std::vector<const Operation*> path;
    std::vector<std::string> lines;
    Queued place = place_of(wait.operation);
    while (true) {
      const auto seen = std::find(path.begin(), path.end(), &place.operation());
      if (seen != path.end()) {
        lines.erase(lines.begin(), lines.begin() + (seen - path.begin()));
        return "deadlock: " + base::join(lines, "; ");
      }
      path.push_back(&place.operation());
      lines.push_back(
          base::text("rank ", place.rank(), " waits in ", describe(*place.channel, place.operation())));
      const Blocker blocker = blocker_of(place);
      if (blocker.kind == Blocker::kLeft) {
        lines.push_back(base::text("rank ", blocker.rank, " has left"));
        return "deadlock: " + base::join(lines, "; ");
      }
      place = blocker.place;
    }
  }

  const std::list<Wait>& waits_;
  const std::vector<Threads>& threads_;
  std::vector<Queued> places_;
  std::set<const Operation*> ending_;
};

}  // namespace

std::string find_deadlock(const std::map<std::string, std::unique_ptr<Channel>>& channels,
                          const std::list<Wait>& waits, const std::vector<Threads>& threads) {
  if (waits.empty()) return "";
  return Analysis(channels, waits, threads).report();
}

}  // namespace sluice::comm::fake
