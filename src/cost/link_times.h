// What moving bytes takes: over a link, and round a ring of lanes beside their attention.
#pragma once

#include <cstdint>

#include "cost/quadratic.h"

namespace sluice::cost {

// Moving bytes: latency plus bytes over bandwidth (bytes per second).
struct LinkTimes {
  int64_t latency_ns = 0;
  int64_t bytes_per_s = 1;
  int64_t of_bytes(int64_t bytes) const;
  bool operator==(const LinkTimes&) const = default;
};

// What ring attention adds to a cell of a micro-batch that is tied over k lanes (causal cutting gives every
// lane the same attention in every step). In each of k − 1 steps a lane passes a block of keys and values on
// to its neighbour while it attends to the block before; the backward pass moves their gradients as well.
// Layer by layer the longer of the two counts, or what the host needs to start both; so beside its work the
// cell takes
//   (k − 1) · max(0, layers · step − attention ÷ k).
// Where what goes round is narrower than keys and values, lanes make these of it again, which hides transfers
// and takes its time.
// Layers with a window pass on only what their tokens see of the lanes before and behind: about a window for
// each of a lane's two chunks of a sequence, at most what the others pass on, in no more than twice as many
// steps as a window spans chunks.
struct RingTimes {
  LinkTimes link;               // between neighbouring lanes
  int64_t layers = 0;           // 0: nothing moves
  int64_t host_ns = 0;          // that the host needs at least for a step of a layer
  int64_t bytes_per_token = 0;  // that a lane passes on in a step of a layer
  int64_t made_per_token = 0;   // keys and values of all layers again, of a token that comes: as Quadratic::b
  int64_t a = 0;                // of attention in these layers: Quadratic::a
  int64_t windowed_layers = 0;  // beside them
  int64_t window = 0;
  int sides = 1;               // of a token that the window is on
  int64_t a_windowed = 0;      // of attention in those
  int64_t scanned_layers = 0;  // recurrent ones, beside both; what these wait for is not counted here
  int64_t state_bytes = 0;     // that goes from piece to piece in one of them

  // `shared`: the lane's work of the sequences that it shares. REQUIRES: lanes >= 1.
  int64_t exposed_ns(const Work& shared, int lanes) const;
  // On two levels (strategy::ring_schedule): so many nodes, `in_node` lanes on each, which pass blocks on as
  // `inside` says. In a round of as many steps a lane attends to what its node has; beside all of it one
  // block goes from node to node:
  //   (nodes − 1) · max(round, layers · step) + round − attention,
  //   round = (in_node − 1) · max(attention ÷ k, layers · step inside) + attention ÷ k.
  // What windows expose is that of one level.
  int64_t exposed_ns(const Work& shared, int nodes, int in_node, const RingTimes& inside) const;
  int64_t all_layers() const { return layers + windowed_layers; }
  bool operator==(const RingTimes&) const = default;

 private:
  int64_t exposed_in_windows_ns(const Work& shared, int lanes) const;
  Wide step_ns(const Work& shared) const;  // of all layers, fixed point
};

}  // namespace sluice::cost
