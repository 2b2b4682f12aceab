// Two pools of ranks that take turns at a model's layers: one has attention, the other experts, and rows of
// several micro-batches go to and fro between them, so that each pool works on one while the other has
// another (MegaScale-Infer, Zhu et al., 2025, section 4.1).
#pragma once

#include <cstdint>
#include <span>

#include "graph/step_graph.h"

namespace sluice::graph {

// What one micro-batch takes of a layer; a layer without experts takes no transfers.
struct PingPongLayer {
  int64_t attention_ns = 0;
  int64_t there_ns = 0;
  int64_t experts_ns = 0;
  int64_t back_ns = 0;
};

// One pass of all micro-batches, timed: rank 0 stands for all of the first pool, which are alike, rank 1 for
// the second's. Rows go there and back at once, but not two micro-batches' the same way.
// REQUIRES: layers, micro_batches >= 1.
StepGraph ping_pong(std::span<const PingPongLayer> layers, int micro_batches);

// What that takes if all layers are alike (section 4.2, equations 2 to 5): exact where the micro-batches keep
// the slower pool busy, m·max(T_a, T_e) >= T_a + T_e + 2·T_c, and where no transfer takes longer than that
// pool; else each layer waits for its round trip.
int64_t ping_pong_ns(const PingPongLayer& layer, int64_t layers, int micro_batches);

}  // namespace sluice::graph
