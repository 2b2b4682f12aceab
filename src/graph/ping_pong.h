// Two pools of ranks that alternate on a model's layers: attention runs on one, experts on the
// other. Rows of several micro-batches travel between the pools, so each works on one
// micro-batch while the other works on another (MegaScale-Infer, Zhu et al., 2025, section 4.1).
#pragma once

#include <cstdint>
#include <span>

#include "graph/step_graph.h"

namespace sluice::graph {

// One micro-batch's times in a layer; a layer without experts has no transfers.
struct PingPongLayer {
  int64_t attention_ns = 0;
  int64_t there_ns = 0;
  int64_t experts_ns = 0;
  int64_t back_ns = 0;
};

// Times one pass of all micro-batches. Rank 0 stands for the first pool, whose ranks are alike,
// rank 1 for the second. Rows travel both ways at once, but one micro-batch at a time each way.
// REQUIRES: layers, micro_batches >= 1.
StepGraph ping_pong(std::span<const PingPongLayer> layers, int micro_batches);

}  // namespace sluice::graph
