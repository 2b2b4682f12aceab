#include "layers/context.h"

#include "base/error.h"
#include "base/text.h"

namespace sluice::layers {
namespace {

// Logits stay in the processor's caches between softmax and products; on a device a chunk fills it.
constexpr int64_t kCpuLogitsBytes = int64_t{4} << 20;
constexpr int64_t kDeviceLogitsBytes = int64_t{256} << 20;

}  // namespace

LayerContext layer_context(const model::Shape& shape, const TensorParallel& parallel, int64_t positions,
                           const at::TensorOptions& like) {
  const std::string fault = model::tp_fault(shape, parallel.tp);
  if (!fault.empty()) throw base::InputError(base::text("[layers] ", fault));
  const model::RopeTable rope = model::rope_table(shape);
  return {.shape = shape,
          .parallel = parallel,
          .rotary = ops::rotary_table(rope.inverse_frequencies, rope.attention_scale, positions, like),
          .logits_chunk_bytes = like.device().is_cpu() ? kCpuLogitsBytes : kDeviceLogitsBytes};
}

}  // namespace sluice::layers
