// The transfers between owner and compute layouts, in two levels.
// A mutual slice is a maximal interval with one owner and one set of holders; transfers move such slices
// or parts of them. Pull: an owner inside a holding node sends the slice to each holder there (intra).
// For any other node the slice is cut evenly among its holders; each gets its part from the owner
// (inter) and passes it to the others (intra). So a rank receives exactly its shard minus what it owns.
// Push is the reverse, with sums. Holders send partial sums to the node's entry rank or owner (intra).
// The entry adds them in rank order and sends one partial sum to the owner (inter), which adds nodes in
// node order.
#pragma once

#include <cstdint>
#include <vector>

#include "link/layout.h"
#include "strategy/topology.h"

namespace sluice::link {

// `bucket` elements [begin, end) go from `source` to `destination`. source == destination is a local move.
struct Transfer {
  int bucket = 0;
  base::Interval slice;
  int source = 0;
  int destination = 0;
  bool operator==(const Transfer&) const = default;
};

// The transfers of one round in pull direction: all inter before all intra. Sorted by (bucket, slice
// begin, source, destination): the order in which bytes lie in buffers on both sides.
struct RouteRound {
  std::vector<int> buckets;
  std::vector<Transfer> inter;  // between nodes; empty on one node
  std::vector<Transfer> intra;  // inside nodes, local moves owner = holder included
};

struct Route {
  int world_size = 0;
  strategy::Topology topology;
  std::vector<RouteRound> rounds;
};

Route route(const model::ParameterTable& table, const ComputeLayout& layout, const Rounds& rounds,
            int world_size, const strategy::Topology& topology);

// The transfers in which `rank` takes part, which is all that a rank needs to execute. A whole route grows
// with the square of the number of ranks (as an all-gather does), this part linearly.
Route route_of_rank(const model::ParameterTable& table, const ComputeLayout& layout, const Rounds& rounds,
                    int world_size, const strategy::Topology& topology, int rank);

// Elements that cross ranks, by rank (local moves not counted).
struct Volume {
  std::vector<int64_t> sent;
  std::vector<int64_t> received;
};
Volume volume(const std::vector<Transfer>& transfers, int world_size);

// volume() of every round's inter and intra transfers in pull direction without listing them, for the clock
// and the memory model. For a push, swap sent and received, with Moved::kTrained.
struct RoundVolume {
  Volume inter;
  Volume intra;
  std::vector<Volume> beyond;  // parts of inter that leave larger groups of nodes, by group size
};
enum class Moved : uint8_t { kAll, kTrained };
std::vector<RoundVolume> round_volumes(const model::ParameterTable& table, const ComputeLayout& layout,
                                       const Rounds& rounds, int world_size,
                                       const strategy::Topology& topology, Moved moved = Moved::kAll);

// The theoretical number of elements that a rank receives in a whole pull: its shard minus those it owns.
int64_t pulled_elements(const model::ParameterTable& table, const ComputeLayout& layout, int world_size,
                        int rank);

// One rank's part of one level of one round, for an all-to-all on the world communicator: slices to send and
// to receive for every peer, in wire order.
struct PeerSlices {
  struct Slice {
    int bucket = 0;
    base::Interval slice;
  };
  std::vector<std::vector<Slice>> send;     // by peer; the own rank has local moves only
  std::vector<std::vector<Slice>> receive;  // by peer
  int64_t send_elements(int peer) const;
  int64_t receive_elements(int peer) const;
};
PeerSlices pull_slices(const std::vector<Transfer>& transfers, int world_size, int rank);

}  // namespace sluice::link
