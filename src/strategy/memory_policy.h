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
  // What experts make of rows that travelled to them is not kept, and made again (layers/experts_block.h);
  // recomputing does so anyway.
  bool visits_again = false;

  bool keeps_all() const { return !recompute && !visits_again && offload_permille == 0; }
  bool keeps_visits() const { return !recompute && !visits_again; }
  auto operator<=>(const MemoryPolicy&) const = default;
};

// "keep", "recompute", "visits again", "recompute, offload 0.3".
std::string to_text(const MemoryPolicy& policy);

// InputError naming the share unless it lies within [0, 1000].
void validate(const MemoryPolicy& policy);

}  // namespace sluice::strategy
