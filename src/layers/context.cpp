#include "layers/context.h"

#include "base/error.h"
#include "base/text.h"
#include "layers/head.h"

namespace sluice::layers {
LayerContext layer_context(const model::Shape& shape, const TensorParallel& parallel, int64_t positions,
                           const at::TensorOptions& like) {
  const std::string fault = model::tp_fault(shape, parallel.tp);
  if (!fault.empty()) throw base::InputError(base::text("[layers] ", fault));
  const std::string too_long = model::context_fault(shape, positions);
  if (!too_long.empty()) throw base::InputError(too_long);
  const model::RopeTable rope = model::rope_table(shape);
  return {.shape = shape,
          .parallel = parallel,
          .rotary = ops::rotary_table(rope.inverse_frequencies, rope.attention_scale, positions, like),
          .logits_chunk_bytes = default_logits_chunk_bytes(like.device())};
}

}  // namespace sluice::layers
