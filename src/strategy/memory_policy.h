// What becomes of a micro-batch's activations between its forward and its backward.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace sluice::strategy {

// Both savings combine: what recomputing leaves is offloaded.
struct MemoryPolicy {
  static constexpr int kAll = 1000;  // thousandths
  // So many thousandths of all layers, spread evenly, keep their input, attention's output and log-sum-exp
  // alone; the backward makes the rest again from them, without running attention a second time (LightSeq's
  // rematerialisation-aware checkpoints).
  int recompute_permille = 0;
  // Of each layer's kept rows so many thousandths wait in host memory; a stage's last two layers stay (MEMO's
  // token-wise swapping with two buffers).
  int offload_permille = 0;
  // What experts make of rows that travelled to them is not kept, and made again (layers/experts_block.h);
  // recomputing does so anyway.
  bool recompute_dispatch = false;

  bool recomputes() const { return recompute_permille > 0; }
  bool recomputes_some() const { return recomputes() && recompute_permille < kAll; }
  // Counted from 0 through the whole model, so that any run of layers has its share, but for one layer.
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
