// What becomes of a micro-batch's activations between its forward and its backward.
#pragma once

#include <compare>
#include <string>

namespace sluice::strategy {

// Both savings combine: what recomputing leaves is offloaded.
struct MemoryPolicy {
  // Only a layer's input, attention's output and log-sum-exp are kept; the backward makes the rest again from
  // them, without running attention a second time (LightSeq's rematerialisation-aware checkpoints).
  bool recompute = false;
  // Of each layer's kept rows so many thousandths wait in host memory; a stage's last two layers stay (MEMO's
  // token-wise swapping with two buffers).
  int offload_permille = 0;

  bool keeps_all() const { return !recompute && offload_permille == 0; }
  auto operator<=>(const MemoryPolicy&) const = default;
};

// "keep", "recompute", "offload 0.3", "recompute, offload 0.3".
std::string to_text(const MemoryPolicy& policy);

// InputError naming the share unless it lies within [0, 1000].
void validate(const MemoryPolicy& policy);

}  // namespace sluice::strategy
