// What one layer's activations weigh, by the shape alone.
#pragma once

#include <cstdint>

#include "model/shape.h"

namespace sluice::cost {

// Bytes a token of one layer on one of tp ranks.
struct LayerBytes {
  int64_t saved = 0;       // kept from forward to backward
  int64_t border = 0;      // of these, what a backward that recomputes the rest needs
  int64_t deferred = 0;    // what a deferred weight gradient holds beyond the saved ones
  int64_t recomputed = 0;  // what a backward has made again at any time
  // At work beyond those: a forward and a backward at once, a backward whose keys and values go round a ring
  // with the gradients of them, and the head beside a chunk's logits.
  int64_t forward = 0;
  int64_t backward = 0;
  int64_t ring_backward = 0;
  int64_t head = 0;
  // Of whichever takes most without a ring.
  int64_t transient() const;
};
// As this program computes them where products accumulate into wider gradients in place, as on GPUs; in full
// precision everywhere (layers/memory_test.cpp holds it against the allocator).
LayerBytes layer_bytes_per_token(const model::Shape& shape, int tp, int64_t element_bytes);

// Matrix elements of one layer, and those whose products a backward that recomputes does again: all but the
// MLP's second matrix, which only later layers need.
struct LayerProducts {
  int64_t all = 0;
  int64_t recomputed = 0;
};
LayerProducts layer_products(const model::Shape& shape);

}  // namespace sluice::cost
