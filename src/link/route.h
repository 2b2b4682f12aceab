// The transfers between owner and compute layouts, as mutual slices, in two levels.
//
// Pull, for every mutual slice (a maximal interval with one owner and one set of holders) and every node
// that holds it: when the owner is inside the node, it sends to each holder there (intra). Otherwise the
// slice is cut evenly among the node's holders, each receives its part from the owner (inter) and passes it
// to the node's other holders (intra). So a rank receives exactly its shard less what it owns. Push is pull
// reversed, summing: holders send partial sums to the node's entry rank or owner (intra), the entry adds
// them in rank order and sends one partial sum to the owner (inter), which adds nodes in node order.
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

// The same, but only the transfers in which `rank` takes part: what a rank needs to execute. A whole route
// grows with the square of the ranks (an all-gather does), this linearly.
Route route_of_rank(const model::ParameterTable& table, const ComputeLayout& layout, const Rounds& rounds,
                    int world_size, const strategy::Topology& topology, int rank);

// Elements that cross ranks, by rank (local moves not counted).
struct Volume {
  std::vector<int64_t> sent;
  std::vector<int64_t> received;
};
Volume volume(const std::vector<Transfer>& transfers, int world_size);

// volume() of every round's inter and intra transfers in pull direction, without listing them: what the
// clock and the memory model need. For push, swap sent and received of what is trained.
struct RoundVolume {
  Volume inter;
  Volume intra;
  std::vector<Volume> beyond;  // of inter, what leaves larger groups of nodes, by size of these
};
enum class Moved : uint8_t { kAll, kTrained };
std::vector<RoundVolume> round_volumes(const model::ParameterTable& table, const ComputeLayout& layout,
                                       const Rounds& rounds, int world_size,
                                       const strategy::Topology& topology, Moved moved = Moved::kAll);

// What theory says a rank receives in pull over all rounds: its shard's elements less those it owns.
int64_t pulled_elements(const model::ParameterTable& table, const ComputeLayout& layout, int world_size,
                        int rank);

// One rank's part of one level of one round, ready for an all-to-all on the world communicator: for every
// peer the slices to send and to receive, in wire order.
struct PeerSlices {
  struct Slice {
    int bucket = 0;
    base::Interval slice;
  };
  std::vector<std::vector<Slice>> send;     // by peer, own rank included only for local moves
  std::vector<std::vector<Slice>> receive;  // by peer
  int64_t send_elements(int peer) const;
  int64_t receive_elements(int peer) const;
};
PeerSlices pull_slices(const std::vector<Transfer>& transfers, int world_size, int rank);

}  // namespace sluice::link
