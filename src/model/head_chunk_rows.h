// How a head cuts its rows into chunks whose logits are in memory at the same time (layers/head.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::model {

// Fewest rows of a chunk, however many bytes their logits take.
inline constexpr int64_t kLeastHeadChunkRows = 64;
// The divergence from a teacher's distribution p that a head minimises; q: the trained model's.
enum class Divergence : uint8_t {
  kForwardKl,  // KL(p ‖ q)
  kReverseKl,  // KL(q ‖ p)
  kJsd,        // β KL(p ‖ m) + (1 − β) KL(q ‖ m), m = β p + (1 − β) q (GKD, equation 1)
};
// How many tensors of the size of a chunk's logits a divergence holds at a time, including both models'
// logits (layers/distillation.h). Several teachers' gradients are added up in another one.
constexpr int64_t distilled_logit_copies(Divergence divergence, size_t teachers = 1) {
  const int64_t sums = teachers > 1 ? 1 : 0;
  switch (divergence) {
    case Divergence::kForwardKl: return 4 + sums;
    case Divergence::kReverseKl: return 5 + sums;
    case Divergence::kJsd: return 6 + sums;
  }
  return 6 + sums;
}

// Rows whose terms a divergence adds up at one time: the sum in double makes a copy of them.
inline constexpr int64_t kDivergenceSumRows = 8;

}  // namespace sluice::model
