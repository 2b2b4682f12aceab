#include "layers/context.h"

#include "base/error.h"
#include "base/text.h"
#include "model/program.h"

namespace sluice::layers {

namespace {

// Logits stay in the processor's caches between softmax and products. On a GPU each chunk reads and writes
// the output matrix's gradient once more: 4,096 rows of a vocabulary of 128K make that a 24th of the
// products' time.
constexpr int64_t kCpuLogitsBytes = int64_t{8} << 20;
constexpr int64_t kGpuLogitsBytes = int64_t{1} << 30;

}  // namespace

int64_t default_logits_chunk_bytes(const at::Device& device) {
  return device.is_cpu() ? kCpuLogitsBytes : kGpuLogitsBytes;
}

LayerContext layer_context(const model::Shape& shape, const TensorParallel& parallel, int64_t positions,
                           const at::TensorOptions& like) {
  const std::string fault = model::tp_fault(shape, parallel.tp);
  if (!fault.empty()) throw base::InputError(base::text("[layers] ", fault));
  const auto table = [&](const model::Rope& rope) {
    const model::RopeTable table = model::rope_table(rope, shape.rotated_width(), positions);
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
