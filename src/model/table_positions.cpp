#include "model/table_positions.h"

#include <algorithm>

#include "model/outline.h"

namespace sluice::model {

// longrope has other frequencies for a context beyond the original one.
int64_t table_positions(const Model& model, int64_t context_length, int64_t longest) {
  const Outline& outline = model.outline();
  int64_t positions = longest;
  for (const Rope& rope : {outline.rope, outline.window_rope.value_or(outline.rope)}) {
    if (rope.scaling == RopeScaling::kLongRope && context_length > rope.original_max_position_embeddings)
      positions = std::max(positions, rope.original_max_position_embeddings + 1);
  }
  return std::min(positions, context_length);
}

}  // namespace sluice::model
