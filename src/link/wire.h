// One rank's work on its memory around each exchange of a route: copies into the send buffer, copies out of
// the receive buffer, and push's sums in a fixed tree. The lists are data, so host and device runtimes
// execute the same ones; pack() and unpack() are the host's execution and the tests' reference.
//
// Order in a round: a pull does inter (pack, exchange, unpack), then intra; a push intra, then inter. On one
// node inter is empty for every rank and need not run.
//
// Push adds inside a node in rank order, then over nodes in node order (a node without holders of the slice
// adds nothing). A sum inside a node is written in place: to the owner's gradient slice, or, on a node
// without the owner, to the entry rank's own gradient shard, from where inter sends it. So push needs no
// buffer but the wire's, and overwrites the gradient shards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/interval.h"
#include "link/route.h"
#include "strategy/wire_codec.h"

namespace sluice::link {

// kWire is the send buffer in `pack` and the receive buffer elsewhere. kCompute is the rank's shard of a
// bucket with its intervals end to end, kOwner the rank's owned slice of a bucket.
enum class Memory : uint8_t { kWire, kCompute, kOwner };

struct Address {
  Memory memory = Memory::kWire;
  int bucket = 0;      // unused for kWire
  int64_t offset = 0;  // elements from the start of that memory
  bool operator==(const Address&) const = default;
};

struct Copy {
  Address from;
  Address to;
  int64_t elements = 0;
};

// to = ((source 0 + source 1) + source 2) + …; `to` may equal a source but must not overlap one partly.
struct Sum {
  Address to;
  int64_t elements = 0;
  int32_t first_source = 0;  // in WireLevel::sources
  int32_t sources = 0;       // at least one
};

// One exchange of one rank. Counts are by world rank, zero for the rank itself. On both sides parts lie end
// to end by peer, each in the order of the route.
struct WireLevel {
  std::vector<int64_t> send_elements;
  std::vector<int64_t> receive_elements;
  std::vector<Copy> pack;    // before the exchange, from compute or owner memory to the wire
  std::vector<Copy> unpack;  // after the exchange: from the wire, and local moves
  std::vector<Sum> sums;     // after the exchange; push only
  std::vector<Address> sources;
  // Ascending: elements of the buffers that no codec may change (model::Parameter::keeps_its_bits).
  std::vector<base::Interval> exact_sent;
  std::vector<base::Interval> exact_received;

  int64_t sent() const;  // elements over all peers
  int64_t received() const;
  bool idle() const;  // nothing to send, receive or move
};

struct RoundWire {
  WireLevel inter;
  WireLevel intra;
};

// The levels of a pull in differences (strategy::PullCodec), for trained buckets alone. Codes are counted in
// elements. Factors are counted in a bucket's coding groups, as if those were elements. Exact elements travel
// without a codec.
struct DifferenceLevel {
  WireLevel codes;
  WireLevel factors;
  WireLevel exact;
};
struct RoundDifference {
  DifferenceLevel inter;
  DifferenceLevel intra;
};

// The elements of a bucket that are pulled as differences.
base::IntervalSet differing(const model::Bucket& bucket);
// The coding groups that contain any of the elements.
base::IntervalSet coding_groups(const base::IntervalSet& elements);

// Bytes by peer in a buffer: all elements coded, then the exact ones again without a codec, in `wide` bytes
// each.
std::vector<int64_t> wire_bytes(const std::vector<int64_t>& elements,
                                const std::vector<base::Interval>& exact, strategy::Codec codec,
                                int64_t wide);

// The lists of `rank` for one round. `round` comes from route(), or from route_of_rank() for this rank.
RoundWire pull_wire(const model::ParameterTable& table, const ComputeLayout& layout, const RouteRound& round,
                    int rank);
RoundDifference difference_wire(const model::ParameterTable& table, const ComputeLayout& layout,
                                const RouteRound& round, int rank);
RoundWire push_wire(const model::ParameterTable& table, const ComputeLayout& layout, const RouteRound& round,
                    const strategy::Topology& topology, int rank);

// By bucket index: the first element of the rank's shard and of its owned slice; null if it has none. A pull
// has parameters in the compute type, a push gradients in the accumulators' type.
template <typename Element>
struct BucketMemory {
  std::vector<Element*> compute;
  std::vector<Element*> owner;
};

// The element at an address; `wire` is the first element of the buffer that kWire means.
template <typename Element>
Element* locate(const BucketMemory<Element>& memory, Element* wire, const Address& place) {
  if (place.memory == Memory::kWire) return wire + place.offset;
  const auto& pointers = place.memory == Memory::kCompute ? memory.compute : memory.owner;
  return pointers[static_cast<size_t>(place.bucket)] + place.offset;
}

// Element is float, double, or uint16_t for any 16-bit type (copies only). `send` and `receive` hold sent()
// and received() elements. Narrower types are coded after pack() and decoded before unpack().
template <typename Element>
void pack(const WireLevel& level, const BucketMemory<Element>& memory, Element* send);
// REQUIRES: no sums if Element is uint16_t.
template <typename Element>
void unpack(const WireLevel& level, const Element* receive, const BucketMemory<Element>& memory);

}  // namespace sluice::link
