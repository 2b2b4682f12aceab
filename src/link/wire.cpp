#include "link/wire.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <numeric>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace sluice::link {
namespace {

using base::Interval;

enum class Direction { kPull, kPush };

Interval groups_around(Interval elements) {
  return {elements.begin / strategy::kCodecGroup, strategy::codec_groups(elements.end)};
}

// Finds the places of buckets' elements, or of their groups' factors, in a rank's memory.
enum class Space { kElements, kGroups };
class Locator {
 public:
  Locator(const model::ParameterTable& table, const ComputeLayout& layout, int rank,
          Space space = Space::kElements)
      : table_(table), layout_(layout), owners_{layout.world_size()}, rank_(rank), space_(space) {}

  int rank() const { return rank_; }
  int world_size() const { return layout_.world_size(); }

  bool owns(int bucket, Interval slice) const {
    const Interval owned = owned_of(bucket);
    return owned.begin <= slice.begin && slice.end <= owned.end;
  }
  Address owner(int bucket, Interval slice) const {
    return {Memory::kOwner, bucket, slice.begin - owned_of(bucket).begin};
  }
  Address compute(int bucket, Interval slice) const {
    return {Memory::kCompute, bucket, shard_of(bucket).offset_of(slice.begin)};
  }
  Address owner_or_compute(int bucket, Interval slice) const {
    return owns(bucket, slice) ? owner(bucket, slice) : compute(bucket, slice);
  }
  // Adds the elements that no codec may change, for a slice that stands at `offset` in a buffer.
  void add_exact(int bucket, Interval slice, int64_t offset, std::vector<Interval>& to) const {
    if (space_ == Space::kGroups) return;
    for (const model::Parameter& parameter : table_.buckets[static_cast<size_t>(bucket)].parameters) {
      if (!parameter.keeps_its_bits()) continue;
      const Interval part = base::intersect(slice, parameter.stored());
      if (part.empty()) continue;
      to.push_back({offset + part.begin - slice.begin, offset + part.end - slice.begin});
    }
  }

 private:
  Interval owned_of(int bucket) const {
    const Interval owned = owners_.owned(table_.buckets[static_cast<size_t>(bucket)], rank_);
    return space_ == Space::kElements ? owned : groups_around(owned);
  }
  const base::IntervalSet& shard_of(int bucket) const {
    const base::IntervalSet& shard = layout_.shard(bucket, rank_);
    if (space_ == Space::kElements) return shard;
    const auto [found, added] = groups_.try_emplace(bucket);
    if (added) found->second = coding_groups(shard);
    return found->second;
  }

  const model::ParameterTable& table_;
  const ComputeLayout& layout_;
  OwnerLayout owners_;
  int rank_;
  Space space_;
  mutable std::map<int, base::IntervalSet> groups_;  // coding groups of shards
};

// Hands out offsets in a wire buffer: parts by peer, each in the order of the route.
class WireOffsets {
 public:
  explicit WireOffsets(const std::vector<int64_t>& elements) : next_(elements.size()) {
    std::exclusive_scan(elements.begin(), elements.end(), next_.begin(), int64_t{0});
  }
  Address take(int peer, int64_t elements) {
    int64_t& next = next_[static_cast<size_t>(peer)];
    return {Memory::kWire, 0, std::exchange(next, next + elements)};
  }

 private:
  std::vector<int64_t> next_;
};

bool follows(const Address& place, int64_t elements, const Address& next) {
  return place.memory == next.memory && place.bucket == next.bucket && place.offset + elements == next.offset;
}

void add_copy(std::vector<Copy>& copies, const Copy& copy) {
  if (!copies.empty()) {
    Copy& last = copies.back();
    if (follows(last.from, last.elements, copy.from) && follows(last.to, last.elements, copy.to)) {
      last.elements += copy.elements;
      return;
    }
  }
  copies.push_back(copy);
}

// In a pull a transfer's source sends and its destination receives; in a push it is the other way round.
struct Ends {
  int sender = 0;
  int receiver = 0;
};
Ends ends(const Transfer& transfer, Direction direction) {
  return direction == Direction::kPull ? Ends{transfer.source, transfer.destination}
                                       : Ends{transfer.destination, transfer.source};
}

WireLevel counted(const std::vector<Transfer>& transfers, const Locator& locator, Direction direction) {
  WireLevel level;
  level.send_elements.resize(static_cast<size_t>(locator.world_size()));
  level.receive_elements.resize(static_cast<size_t>(locator.world_size()));
  for (const Transfer& transfer : transfers) {
    const auto [sender, receiver] = ends(transfer, direction);
    if (sender == receiver) continue;
    if (sender == locator.rank()) {
      level.send_elements[static_cast<size_t>(receiver)] += transfer.slice.size();
    }
    if (receiver == locator.rank()) {
      level.receive_elements[static_cast<size_t>(sender)] += transfer.slice.size();
    }
  }
  return level;
}

void sort_exact(WireLevel& level) {
  for (std::vector<Interval>* exact : {&level.exact_sent, &level.exact_received})
    std::ranges::sort(*exact, {}, &Interval::begin);
}

WireLevel pull_level(const std::vector<Transfer>& transfers, const Locator& locator) {
  WireLevel level = counted(transfers, locator, Direction::kPull);
  WireOffsets send(level.send_elements);
  WireOffsets receive(level.receive_elements);
  for (const auto& [bucket, slice, source, destination] : transfers) {
    const int64_t elements = slice.size();
    if (source == locator.rank() && destination == source) {
      add_copy(level.unpack, {locator.owner(bucket, slice), locator.compute(bucket, slice), elements});
    } else if (source == locator.rank()) {
      const Address to = send.take(destination, elements);
      add_copy(level.pack, {locator.owner_or_compute(bucket, slice), to, elements});
      locator.add_exact(bucket, slice, to.offset, level.exact_sent);
    } else if (destination == locator.rank()) {
      const Address from = receive.take(source, elements);
      add_copy(level.unpack, {from, locator.compute(bucket, slice), elements});
      locator.add_exact(bucket, slice, from.offset, level.exact_received);
    }
  }
  sort_exact(level);
  return level;
}

// Parts of each transfer: its coded elements, their coding groups, or its exact elements.
enum class Share { kCoded, kGroups, kExact };
std::vector<Transfer> share_of(const model::ParameterTable& table, const std::vector<Transfer>& transfers,
                               Share share) {
  std::map<int, base::IntervalSet> coded_of;  // by bucket
  std::vector<Transfer> shares;
  for (const Transfer& transfer : transfers) {
    const auto [coded, added] = coded_of.try_emplace(transfer.bucket);
    if (added) coded->second = differing(table.buckets[static_cast<size_t>(transfer.bucket)]);
    const auto add = [&](Interval slice) {
      if (slice.empty()) return;
      shares.push_back(transfer);
      shares.back().slice = slice;
    };
    int64_t from = transfer.slice.begin;
    const base::IntervalSet own = coded->second.intersect({transfer.slice});
    for (const Interval& some : own.intervals()) {
      if (share == Share::kExact) add({from, some.begin});
      if (share == Share::kCoded) add(some);
      if (share == Share::kGroups) add(groups_around(some));
      from = some.end;
    }
    if (share == Share::kExact) add({from, transfer.slice.end});
  }
  return shares;
}

// A term of a sum: elements of a bucket, and its rank in the order of addition.
struct Term {
  int bucket = 0;
  Interval slice;
  int order = 0;
  Address from;  // address of slice.begin
};

// Cuts terms at each other's ends and adds up those that overlap. Ascending by (bucket, begin).
class SumBuilder {
 public:
  SumBuilder(WireLevel& level, const Locator& locator) : level_(level), locator_(locator) {}

  void build(std::vector<Term> terms) {
    std::sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) {
      return std::tie(a.bucket, a.slice.begin) < std::tie(b.bucket, b.slice.begin);
    });
    std::vector<Term> active;  // ascending by order
    for (size_t next = 0; next < terms.size() || !active.empty();) {
      if (active.empty()) begin_ = {terms[next].bucket, terms[next].slice.begin};
      for (; next < terms.size() && starts_here(terms[next]); ++next) insert(active, terms[next]);
      int64_t end = active.front().slice.end;
      for (const Term& term : active) end = std::min(end, term.slice.end);
      if (next < terms.size() && terms[next].bucket == begin_.bucket) {
        end = std::min(end, terms[next].slice.begin);
      }
      add(active, end);
      begin_.position = end;
      std::erase_if(active, [&](const Term& term) { return term.slice.end == end; });
    }
  }

 private:
  struct Position {
    int bucket = 0;
    int64_t position = 0;
  };

  bool starts_here(const Term& term) const {
    return term.bucket == begin_.bucket && term.slice.begin == begin_.position;
  }

  static void insert(std::vector<Term>& active, const Term& term) {
    active.insert(std::upper_bound(active.begin(), active.end(), term,
                                   [](const Term& a, const Term& b) { return a.order < b.order; }),
                  term);
  }

  void add(const std::vector<Term>& active, int64_t end) {
    const Interval slice{begin_.position, end};
    Sum sum{.to = locator_.owner_or_compute(begin_.bucket, slice),
            .elements = slice.size(),
            .first_source = static_cast<int32_t>(level_.sources.size()),
            .sources = static_cast<int32_t>(active.size())};
    for (const Term& term : active) {
      Address from = term.from;
      from.offset += slice.begin - term.slice.begin;
      level_.sources.push_back(from);
    }
    const bool already_there = sum.sources == 1 && level_.sources.back() == sum.to;
    if (already_there || extends_last(sum)) {
      level_.sources.resize(static_cast<size_t>(sum.first_source));
    } else {
      level_.sums.push_back(sum);
    }
  }

  // Whether `sum` continues the last sum in all its addresses; if so the last one grows.
  bool extends_last(const Sum& sum) {
    if (level_.sums.empty()) return false;
    Sum& last = level_.sums.back();
    bool extends = last.sources == sum.sources && follows(last.to, last.elements, sum.to);
    for (int32_t i = 0; extends && i < sum.sources; ++i) {
      extends = follows(level_.sources[static_cast<size_t>(last.first_source + i)], last.elements,
                        level_.sources[static_cast<size_t>(sum.first_source + i)]);
    }
    if (extends) last.elements += sum.elements;
    return extends;
  }

  WireLevel& level_;
  const Locator& locator_;
  Position begin_;
};

// Packs what the rank sends and returns what it receives as terms; `order` gives a sender's rank in sums.
template <typename Order>
std::vector<Term> push_terms(WireLevel& level, const std::vector<Transfer>& transfers, const Locator& locator,
                             const Order& order) {
  WireOffsets send(level.send_elements);
  WireOffsets receive(level.receive_elements);
  std::vector<Term> terms;
  for (const auto& [bucket, slice, receiver, sender] : transfers) {
    if (sender == receiver) continue;
    if (sender == locator.rank()) {
      const Address to = send.take(receiver, slice.size());
      add_copy(level.pack, {locator.compute(bucket, slice), to, slice.size()});
      locator.add_exact(bucket, slice, to.offset, level.exact_sent);
    } else if (receiver == locator.rank()) {
      const Address from = receive.take(sender, slice.size());
      terms.push_back({bucket, slice, order(sender), from});
      locator.add_exact(bucket, slice, from.offset, level.exact_received);
    }
  }
  sort_exact(level);
  return terms;
}

WireLevel push_intra(const std::vector<Transfer>& transfers, const Locator& locator) {
  WireLevel level = counted(transfers, locator, Direction::kPush);
  const int rank = locator.rank();
  std::vector<Term> terms = push_terms(level, transfers, locator, [](int sender) { return sender; });
  // The rank's own terms: local moves to elements that it owns, and each slice that enters its node at it.
  int last_bucket = -1;
  Interval last_slice;
  for (const auto& [bucket, slice, source, destination] : transfers) {
    if (source != rank) continue;
    const bool local = destination == rank;
    const bool entry = !local && !locator.owns(bucket, slice);
    if (!local && !(entry && (bucket != last_bucket || slice != last_slice))) continue;
    last_bucket = bucket;
    last_slice = slice;
    terms.push_back({bucket, slice, rank, locator.compute(bucket, slice)});
  }
  SumBuilder(level, locator).build(std::move(terms));
  return level;
}

WireLevel push_inter(const RouteRound& round, const Locator& locator, const strategy::Topology& topology) {
  WireLevel level = counted(round.inter, locator, Direction::kPush);
  const auto node_of = [&](int rank) { return topology.node_of(rank); };
  std::vector<Term> terms = push_terms(level, round.inter, locator, node_of);
  // The sum over the rank's own node is in the owner slice already.
  std::vector<base::IntervalSet> own(terms.empty() ? 0 : static_cast<size_t>(round.buckets.back()) + 1);
  for (const auto& [bucket, slice, source, destination] : round.intra) {
    const bool needed = !own.empty() && source == locator.rank() && locator.owns(bucket, slice);
    if (needed) own[static_cast<size_t>(bucket)].add(slice);
  }
  for (size_t index = 0; index < own.size(); ++index) {
    const int bucket = static_cast<int>(index);
    for (const Interval& slice : own[index].intervals()) {
      terms.push_back({bucket, slice, node_of(locator.rank()), locator.owner(bucket, slice)});
    }
  }
  SumBuilder(level, locator).build(std::move(terms));
  return level;
}

// Drops frozen buckets, which have no gradients.
RouteRound of_trained(const model::ParameterTable& table, RouteRound round) {
  const auto frozen = [&](int bucket) { return !table.buckets[static_cast<size_t>(bucket)].trained; };
  const auto of_frozen = [&](const Transfer& transfer) { return frozen(transfer.bucket); };
  if (std::ranges::none_of(round.buckets, frozen)) return round;
  std::erase_if(round.buckets, frozen);
  std::erase_if(round.inter, of_frozen);
  std::erase_if(round.intra, of_frozen);
  return round;
}

int64_t total(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// Adds block by block in a buffer that stays in the first-level cache: each source is read once and the
// result written once, and `to` may be a source.
template <typename Element>
void add_up(const std::vector<const Element*>& sources, Element* to, int64_t elements) {
  constexpr int64_t kBlock = 1024;
  std::array<Element, kBlock> block;
  for (int64_t begin = 0; begin < elements; begin += kBlock) {
    const int64_t count = std::min(kBlock, elements - begin);
    std::copy_n(sources[0] + begin, count, block.data());
    for (size_t source = 1; source < sources.size(); ++source) {
      const Element* term = sources[source] + begin;
      for (int64_t i = 0; i < count; ++i) block[static_cast<size_t>(i)] += term[i];
    }
    std::copy_n(block.data(), count, to + begin);
  }
}

}  // namespace

int64_t WireLevel::sent() const { return total(send_elements); }

int64_t WireLevel::received() const { return total(receive_elements); }

std::vector<int64_t> wire_bytes(const std::vector<int64_t>& elements, const std::vector<Interval>& exact,
                                strategy::Codec codec, int64_t wide) {
  std::vector<int64_t> bytes;
  int64_t begin = 0;
  for (const int64_t count : elements) {
    int64_t own = strategy::coded_bytes(codec, count, wide);
    for (const Interval& some : exact)
      if (codec != strategy::Codec::kNone) own += base::intersect(some, {begin, begin + count}).size() * wide;
    bytes.push_back(own);
    begin += count;
  }
  return bytes;
}

bool WireLevel::idle() const { return pack.empty() && unpack.empty() && sums.empty(); }

RoundWire pull_wire(const model::ParameterTable& table, const ComputeLayout& layout, const RouteRound& round,
                    int rank) {
  const Locator locator(table, layout, rank);
  return {pull_level(round.inter, locator), pull_level(round.intra, locator)};
}

RoundDifference difference_wire(const model::ParameterTable& table, const ComputeLayout& layout,
                                const RouteRound& whole, int rank) {
  const Locator elements(table, layout, rank), groups(table, layout, rank, Space::kGroups);
  const RouteRound round = of_trained(table, whole);
  const auto level = [&](const std::vector<Transfer>& transfers) -> DifferenceLevel {
    return {pull_level(share_of(table, transfers, Share::kCoded), elements),
            pull_level(share_of(table, transfers, Share::kGroups), groups),
            pull_level(share_of(table, transfers, Share::kExact), elements)};
  };
  return {level(round.inter), level(round.intra)};
}

base::IntervalSet differing(const model::Bucket& bucket) {
  base::IntervalSet elements;
  if (!bucket.trained || bucket.size < strategy::kLeastDifferences) return elements;
  for (const model::Parameter& parameter : bucket.parameters)
    if (!parameter.keeps_its_bits()) elements.add(parameter.stored());
  return elements;
}

base::IntervalSet coding_groups(const base::IntervalSet& elements) {
  base::IntervalSet groups;
  for (const Interval& some : elements.intervals()) groups.add(groups_around(some));
  return groups;
}

RoundWire push_wire(const model::ParameterTable& table, const ComputeLayout& layout, const RouteRound& whole,
                    const strategy::Topology& topology, int rank) {
  const Locator locator(table, layout, rank);
  const RouteRound round = of_trained(table, whole);
  return {push_inter(round, locator, topology), push_intra(round.intra, locator)};
}

template <typename Element>
void pack(const WireLevel& level, const BucketMemory<Element>& memory, Element* send) {
  for (const Copy& copy : level.pack) {
    std::memcpy(send + copy.to.offset, locate(memory, send, copy.from),
                static_cast<size_t>(copy.elements) * sizeof(Element));
  }
}

template <typename Element>
void unpack(const WireLevel& level, const Element* receive, const BucketMemory<Element>& memory) {
  Element* wire = const_cast<Element*>(receive);  // only read: no copy or sum ends in the wire
  for (const Copy& copy : level.unpack) {
    std::memcpy(locate(memory, wire, copy.to), locate(memory, wire, copy.from),
                static_cast<size_t>(copy.elements) * sizeof(Element));
  }
  if constexpr (std::is_floating_point_v<Element>) {
    std::vector<const Element*> sources;
    for (const Sum& sum : level.sums) {
      sources.clear();
      for (int32_t i = 0; i < sum.sources; ++i) {
        sources.push_back(locate(memory, wire, level.sources[static_cast<size_t>(sum.first_source + i)]));
      }
      add_up(sources, locate(memory, wire, sum.to), sum.elements);
    }
  } else {
    SLUICE_ASSERT(level.sums.empty(), "16-bit elements are copied, never summed");
  }
}

template void pack(const WireLevel&, const BucketMemory<float>&, float*);
template void pack(const WireLevel&, const BucketMemory<double>&, double*);
template void pack(const WireLevel&, const BucketMemory<uint16_t>&, uint16_t*);
template void unpack(const WireLevel&, const float*, const BucketMemory<float>&);
template void unpack(const WireLevel&, const double*, const BucketMemory<double>&);
template void unpack(const WireLevel&, const uint16_t*, const BucketMemory<uint16_t>&);

}  // namespace sluice::link
