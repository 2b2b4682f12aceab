#include "layers/context.h"

#include "base/error.h"
#include "base/text.h"
#include "layers/head.h"

namespace sluice::layers {
LayerContext layer_context(const model::Shape& shape, const TensorParallel& parallel, int64_t positions,
                           const at::TensorOptions& like) {
  const std::string fault = model::tp_fault(shape, parallel.tp);
  if (!fault.empty()) throw base::InputError(base::text("[layers] ", fault));
  const auto table = [&](const model::Rope& rope) {
    const model::RopeTable table = model::rope_table(rope, shape.head_dim, positions);
    return ops::rotary_table(table.inverse_frequencies, table.attention_scale, positions, like);
  };
  LayerContext context{.shape = shape,
                       .parallel = parallel,
                       .rotary = table(shape.rope),
                       .logits_chunk_bytes = default_logits_chunk_bytes(like.device())};
  context.window_rotary = shape.window_rope ? table(*shape.window_rope) : context.rotary;
  return context;
}

}  // namespace sluice::layers
