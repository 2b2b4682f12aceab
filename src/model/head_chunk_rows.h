// How a head cuts its rows into chunks, whose logits are at hand at the same time (layers/head.h).
#pragma once

#include <cstdint>

namespace sluice::model {

// A chunk has so many rows at least, however many bytes their logits take.
inline constexpr int64_t kLeastHeadChunkRows = 64;
// What a head minimises towards a teacher's distribution p; q: the trained model's.
enum class Divergence : uint8_t {
  kForwardKl,  // KL(p ‖ q)
  kReverseKl,  // KL(q ‖ p)
  kJsd,        // β KL(p ‖ m) + (1 − β) KL(q ‖ m), m = β p + (1 − β) q (GKD, equation 1)
};
// Tensors as large as a chunk's logits that a divergence has at one time, these and the teacher's among them
// (layers/distillation.h).
constexpr int64_t distilled_logit_copies(Divergence divergence) {
  switch (divergence) {
    case Divergence::kForwardKl: return 4;
    case Divergence::kReverseKl: return 5;
    case Divergence::kJsd: return 6;
  }
  return 6;
}

}  // namespace sluice::model
