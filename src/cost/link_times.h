// Times of moving bytes: over a link, and round a ring of lanes beside their attention.
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

// The time that ring attention adds to a cell of a micro-batch that is tied over k lanes (causal cutting
// gives every lane the same attention in every step). In each of k − 1 steps a lane passes a block of keys
// and values on to its neighbour while it attends to the block before; the backward pass moves their
// gradients as well. In each layer the longer of transfer and attention counts, or the host's time to start
// both. Beside its work the cell takes
//   (k − 1) · max(0, layers · step − attention ÷ k).
// If latent rows, narrower than keys and values, go round, lanes make keys and values from them again. The
// recomputation hides transfers and takes its own time.
// Layers with a window pass on only the rows that their tokens see of the lanes before and after: about a
// window for each of a lane's two chunks of a sequence. They pass on at most as many as other layers, in no
// more than twice as many steps as a window spans chunks.
struct RingTimes {
  LinkTimes link;               // between neighbouring lanes
  int64_t layers = 0;           // 0: nothing moves
  int64_t host_ns = 0;          // least host time of a step of a layer
  int64_t bytes_per_token = 0;  // passed on by a lane in a step of a layer
  int64_t made_per_token = 0;   // making a received token's keys and values, all layers: Quadratic::b
  int64_t a = 0;                // attention of these layers: Quadratic::a
  int64_t windowed_layers = 0;  // besides them
  int64_t window = 0;
  int sides = 1;               // sides of a token that its window covers
  int64_t a_windowed = 0;      // attention of windowed layers
  int64_t scanned_layers = 0;  // recurrent ones, besides both; their waiting is not counted here
  int64_t state_bytes = 0;     // passed from piece to piece in one of them

  // `shared`: the lane's work of the sequences that it shares. REQUIRES: lanes >= 1.
  int64_t exposed_ns(const Work& shared, int lanes) const;
  // On two levels (strategy::ring_schedule): `nodes` nodes with `in_node` lanes each; `inside` times the
  // steps inside a node. In a round of in_node steps a lane attends to all blocks that its node has. One
  // block goes from node to node beside it:
  //   (nodes − 1) · max(round, layers · step) + round − attention,
  //   round = (in_node − 1) · max(attention ÷ k, layers · step inside) + attention ÷ k.
  // Windowed layers expose as much as on one level.
  int64_t exposed_ns(const Work& shared, int nodes, int in_node, const RingTimes& inside) const;
  int64_t all_layers() const { return layers + windowed_layers; }
  bool operator==(const RingTimes&) const = default;

 private:
  int64_t exposed_in_windows_ns(const Work& shared, int lanes) const;
  Wide step_ns(const Work& shared) const;  // all layers, fixed point
};

}  // namespace sluice::cost
