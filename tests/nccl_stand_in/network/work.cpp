#include "work.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

namespace sluice::nccl_stand_in {
namespace {

Pair* pair_of(const Work& kernel, const Part& part) {
  auto& pairs = kernel.member->of->pairs;
  const int own = kernel.member->index;
  return &pairs[part.send != nullptr ? std::pair(own, part.peer) : std::pair(part.peer, own)];
}

// The kernel with the other end of a message; null if it was not issued.
const Work* other_end(const Work& kernel, size_t number) {
  const Part& part = kernel.parts[number];
  const Pair& pair = *pair_of(kernel, part);
  const auto& own = part.send != nullptr ? pair.sends : pair.receives;
  const auto& others = part.send != nullptr ? pair.receives : pair.sends;
  const auto found = std::ranges::find_if(
      own, [&](const auto& each) { return each.first.get() == &kernel && each.second == number; });
  const auto position = static_cast<size_t>(found - own.begin());
  return position < others.size() ? others[position].first.get() : nullptr;
}

const Collective* collective_of(const Work& kernel) {
  const Communicator& of = *kernel.member->of;
  const auto position = static_cast<size_t>(kernel.place - of.first_place);
  return kernel.place >= of.first_place && position < of.collectives.size() ? &of.collectives[position]
                                                                            : nullptr;
}

// A search for a circle: each start and each end of a work waits for other starts and ends.
class Search {
 public:
  explicit Search(const LaunchOrder& order) : order_(order) {}

  std::string circle(const Work& through) {
    for (const Step step : {Step::kStart, Step::kEnd}) {
      goal_ = {&through, step};
      seen_.clear();
      way_.clear();
      if (leads_to_goal(goal_)) return text();
    }
    return "";
  }

 private:
  enum class Step : uint8_t { kStart, kEnd };
  using Node = std::pair<const Work*, Step>;

  bool leads_to_goal(const Node& node) {
    way_.push_back(node.first);
    for (const Node& next : awaited(node)) {
      if (next == goal_) return true;
      if (seen_.insert(next).second && leads_to_goal(next)) return true;
    }
    way_.pop_back();
    return false;
  }

  std::vector<Node> awaited(const Node& node) const {
    const Work& work = *node.first;
    std::vector<Node> nodes;
    if (node.second == Step::kStart) {
      add_end(before(work, work.stream->works), nodes);
      const auto found = order_.find(work.stream->device);
      if (work.is_kernel() && found != order_.end()) add_end(before(work, found->second), nodes);
      return nodes;
    }
    nodes.emplace_back(&work, Step::kStart);
    if (!work.is_kernel()) return nodes;
    for (const Work* other : counterparts(work)) nodes.emplace_back(other, Step::kStart);
    return nodes;
  }

  static void add_end(const Work* work, std::vector<Node>& nodes) {
    if (work != nullptr && !work->done) nodes.emplace_back(work, Step::kEnd);
  }

  static const Work* before(const Work& work, const std::deque<WorkPtr>& works) {
    for (size_t i = 1; i < works.size(); ++i) {
      if (works[i].get() == &work) return works[i - 1].get();
    }
    return nullptr;
  }

  std::string text() const {
    std::string all;
    const Work* last = nullptr;
    for (const Work* work : way_) {
      if (!work->is_kernel() || work == std::exchange(last, work)) continue;
      all += (all.empty() ? "" : " waits for ") + work->what;
    }
    return all + " waits for the first";
  }

  const LaunchOrder& order_;
  Node goal_;
  std::set<Node> seen_;
  std::vector<const Work*> way_;
};

template <typename Element, typename Add>
void sum(const Collective& collective, size_t to, Add add) {
  const auto count = static_cast<size_t>(collective[to]->count);
  std::vector<Element> total(count);
  // A ring: the sum begins behind its owner, so that its last bits differ from the host's.
  for (size_t step = 1; step <= collective.size(); ++step) {
    const size_t from = (to + step) % collective.size();
    const Element* terms = static_cast<const Element*>(collective[from]->send) + to * count;
    for (size_t i = 0; i < count; ++i) total[i] = step == 1 ? terms[i] : add(total[i], terms[i]);
  }
  if (count > 0) std::memcpy(collective[to]->receive, total.data(), count * sizeof(Element));
}

uint16_t add_bfloat16(uint16_t one, uint16_t other) {
  const auto wide = [](uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); };
  const auto bits = std::bit_cast<uint32_t>(wide(one) + wide(other));
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

std::string arguments(const Work& kernel) {
  return kernel.what + " of " + std::to_string(kernel.count) + " elements of type " +
         std::to_string(kernel.type);
}

}  // namespace

std::vector<const Work*> counterparts(const Work& kernel) {
  std::vector<const Work*> others;
  if (kernel.kind == Work::Kind::kMessages) {
    for (size_t i = 0; i < kernel.parts.size(); ++i) {
      if (kernel.parts[i].done) continue;
      if (const Work* other = other_end(kernel, i)) others.push_back(other);
    }
  } else if (const Collective* collective = collective_of(kernel)) {
    for (const WorkPtr& each : *collective) {
      if (each != nullptr && each.get() != &kernel) others.push_back(each.get());
    }
  }
  return others;
}

std::vector<const Member*> missing(const Work& kernel) {
  std::vector<const Member*> members;
  const Communicator& of = *kernel.member->of;
  if (kernel.kind == Work::Kind::kMessages) {
    for (size_t i = 0; i < kernel.parts.size(); ++i) {
      const Part& part = kernel.parts[i];
      if (!part.done && other_end(kernel, i) == nullptr)
        members.push_back(of.members[static_cast<size_t>(part.peer)]);
    }
  } else if (const Collective* collective = collective_of(kernel)) {
    for (size_t member = 0; member < collective->size(); ++member) {
      if ((*collective)[member] == nullptr) members.push_back(of.members[member]);
    }
  }
  return members;
}

std::string circle_through(const Work& kernel, const LaunchOrder& order) {
  return Search(order).circle(kernel);
}

void carry_out(const Part& send, const Part& receive) {
  std::memcpy(receive.receive, send.send, static_cast<size_t>(send.bytes));
}

void carry_out(const Collective& collective) {
  const auto bytes = static_cast<size_t>(collective.front()->count);  // all_gather: of bytes
  for (size_t to = 0; to < collective.size(); ++to) {
    if (collective[to]->kind == Work::Kind::kAllGather) {
      for (size_t from = 0; from < collective.size() && bytes > 0; ++from)
        std::memmove(static_cast<std::byte*>(collective[to]->receive) + from * bytes, collective[from]->send,
                     bytes);
    } else if (collective[to]->type == ncclFloat64) {
      sum<double>(collective, to, std::plus<>());
    } else if (collective[to]->type == ncclFloat32) {
      sum<float>(collective, to, std::plus<>());
    } else {
      sum<uint16_t>(collective, to, add_bfloat16);
    }
  }
}

std::string mismatch(const Work& one, const Work& other) {
  const bool same = one.kind == other.kind && one.count == other.count && one.type == other.type;
  return same ? "" : arguments(one) + " meets " + arguments(other);
}

}  // namespace sluice::nccl_stand_in
