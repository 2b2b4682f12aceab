#include "model/shape_figures.h"

#include <algorithm>

#include "model/dispatch_chunk_rows.h"

namespace sluice::model {

int64_t least_ffn(const Shape& shape, int expert_lanes) {
  const Experts& experts = shape.experts;
  if (experts.count == 0) return shape.ffn_hidden;
  const int64_t at_hand = expert_lanes > 1 ? 0 : experts.per_token * experts.hidden;
  const int64_t visited = at_hand + experts.shared_hidden;
  return std::min(shape.ffn_hidden, visited * 3 / 4);
}

// The peak is in a backward. It has rows as they leave, arrive and are at work, and likewise their
// gradients: two rows there and one row back for each row of a wave. One expert may have all rows: its
// rows twice, its gate and up, their and SwiGLU's gradients, and its output. Each visit also has
// numbers.
int64_t dispatch_chunk_bytes(const Shape& shape, const Cut& cut, int64_t element_bytes) {
  if (cut.expert_lanes == 1 || shape.experts.count == 0) return 0;
  const Experts& experts = shape.experts;
  const int64_t width = (experts.hidden + cut.tp - 1) / cut.tp;
  const int64_t there = 3 * 2 * shape.hidden, back = 3 * shape.hidden;
  const int64_t expert = 3 * shape.hidden + 6 * width;
  constexpr int64_t kVisitBytes = 64;  // numbers, places and weights, in several orders
  return dispatch_chunk_rows(cut.expert_lanes).most *
         ((there + back + expert) * element_bytes + experts.per_token * kVisitBytes);
}

int64_t products_of_keys(const Shape& shape) {
  return shape.latent.kv_rank * shape.heads * (shape.latent.unrotated + shape.latent.values);
}

int64_t products_with_narrow(const Shape& shape) {
  if (shape.latent.kv_rank == 0) return 0;
  return shape.heads * (2 * shape.latent.kv_rank + shape.latent.rotated) / 2;
}

}  // namespace sluice::model
