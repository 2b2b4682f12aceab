#include "model/mlp_kind.h"

#include <algorithm>

#include "base/text.h"

namespace sluice::model {

std::vector<Parameter> MlpKind::parameters() const {
  const RowGroup ffn{ffn_hidden_, ffn_hidden_};
  Parameter down = matrix(kDown, {"mlp.down_proj.weight"}, hidden_, {ffn}, Start::kResidual);
  down.transposed = true;
  return {norm(kNorm, "post_attention_layernorm.weight", hidden_),
          matrix(kGateUp, {"mlp.gate_proj.weight", "mlp.up_proj.weight"}, hidden_, {ffn, ffn}),
          std::move(down)};
}

std::string MlpKind::tp_fault(int tp) const {
  return tp > ffn_hidden_ ? base::text("tp ", tp, " is above ffn_hidden ", ffn_hidden_) : "";
}

// Recomputing leaves out the second matrix, which only later layers need.
TokenWork MlpKind::work() const {
  return {.products = 3 * hidden_ * ffn_hidden_,
          .recomputed = 2 * hidden_ * ffn_hidden_,
          .elements = 5 * hidden_ + 3 * ffn_hidden_,
          .collectives = 2};
}

PartBytes MlpKind::bytes(int tp, int64_t element_bytes) const {
  const int64_t statistic_bytes = std::max<int64_t>(4, element_bytes);
  const int64_t ffn = (ffn_hidden_ + tp - 1) / tp;
  // The norm's scale; behind the part the norm's input.
  const int64_t norm_bytes = norm_place_ == NormPlace::kBefore ? statistic_bytes : hidden_ * element_bytes;
  const RowBytes input{hidden_ * element_bytes + norm_bytes, 2 * ffn * element_bytes};
  const int64_t shard = (hidden_ + tp - 1) / tp;
  const int64_t gathered = tp > 1 ? hidden_ : 0;
  PartBytes bytes;
  // Its input and the norm's scale; gate and up.
  bytes.saved = input;
  bytes.recomputed = input;
  // The normed input and output gradient; dgate-up and SwiGLU's output.
  bytes.until_weight = {2 * hidden_ * element_bytes, 3 * ffn * element_bytes};
  // SwiGLU's output beside the product that is summed over the ranks.
  bytes.forward = element_bytes * (ffn + gathered);
  // SwiGLU's output with its gradient; with the product for the input's gradient; with that, the normed input
  // and the gradient behind the norm. All beside the gathered gradient; gate and up become their gradients.
  bytes.backward = element_bytes * (gathered + std::max({2 * ffn, ffn + gathered + shard, ffn + 3 * shard}));
  bytes.ring_backward = bytes.backward;
  bytes.released = 2 * ffn * element_bytes;
  return bytes;
}

}  // namespace sluice::model
