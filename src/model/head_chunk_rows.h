// How a head cuts its rows into chunks, whose logits are at hand at the same time (layers/head.h).
#pragma once

#include <cstdint>

namespace sluice::model {

// A chunk has so many rows at least, however many bytes their logits take.
inline constexpr int64_t kLeastHeadChunkRows = 64;
// Tensors as large as a chunk's logits that a divergence from a teacher has at one time, these and the
// teacher's among them (layers/distillation.h).
inline constexpr int64_t kDistilledLogitCopies = 7;

}  // namespace sluice::model
