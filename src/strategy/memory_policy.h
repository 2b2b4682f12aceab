// The fate of a micro-batch's activations between forward and backward: kept, recomputed or offloaded.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace sluice::strategy {

// Recomputation and offloading combine: rows that recomputation still keeps are offloaded.
struct MemoryPolicy {
  static constexpr int kAll = 1000;  // thousandths
  // Activation checkpointing: the share of all layers, in thousandths and spread evenly, that keep their
  // input, attention's output and log-sum-exp alone. The backward recomputes the rest without running
  // attention again (LightSeq's rematerialisation-aware checkpoints).
  int recompute_permille = 0;
  // The share of each layer's kept rows, in thousandths, that waits in host memory. A stage's last two layers
  // keep theirs on the device (MEMO's token-wise swapping with two buffers).
  int offload_permille = 0;
  // Results of experts for rows that travelled to them are not kept but recomputed, dispatch included
  // (layers/experts_block.h). Layers that recompute do so anyway.
  bool recompute_dispatch = false;

  bool recomputes() const { return recompute_permille > 0; }
  bool recomputes_some() const { return recomputes() && recompute_permille < kAll; }
  // Layers are counted through the whole model, so any run of layers has its share to within one layer.
  bool recomputes(int64_t layer) const {
    return (layer + 1) * recompute_permille / kAll > layer * recompute_permille / kAll;
  }
  bool keeps_all() const { return !recomputes() && !recompute_dispatch && offload_permille == 0; }
  bool keeps_dispatched() const { return !recomputes() && !recompute_dispatch; }
  auto operator<=>(const MemoryPolicy&) const = default;
};

// "keep", "recompute", "recompute 0.25", "visits again", "recompute, offload 0.3".
std::string to_text(const MemoryPolicy& policy);

// InputError naming a share that does not lie within [0, 1000].
void validate(const MemoryPolicy& policy);

}  // namespace sluice::strategy
