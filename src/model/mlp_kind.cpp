#include "model/mlp_kind.h"

#include <algorithm>

#include "base/text.h"

namespace sluice::model {

std::vector<Parameter> MlpKind::parameters() const {
  const RowGroup ffn{shape_.ffn_hidden, shape_.ffn_hidden};
  Parameter down = matrix(kDown, {"mlp.down_proj.weight"}, shape_.hidden, {ffn}, Start::kResidual);
  down.transposed = true;
  const NormPlace place = shape_.norm_place;
  const std::string_view before =
      place == NormPlace::kAround ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight";
  const Parameter behind =
      norm(kNormBehind, "post_feedforward_layernorm.weight", shape_.hidden, shape_.norm_offset);
  std::vector<Parameter> parameters = {
      place == NormPlace::kBehind ? behind : norm(kNorm, before, shape_.hidden, shape_.norm_offset),
      matrix(kGateUp, {"mlp.gate_proj.weight", "mlp.up_proj.weight"}, shape_.hidden, {ffn, ffn}),
      std::move(down)};
  if (place == NormPlace::kAround) parameters.push_back(behind);
  return parameters;
}

std::string MlpKind::tp_fault(int tp) const {
  return tp > shape_.ffn_hidden ? base::text("tp ", tp, " is above ffn_hidden ", shape_.ffn_hidden) : "";
}

// Recomputing leaves out the second matrix, which only later layers need.
TokenWork MlpKind::work() const {
  const int64_t norms = shape_.norm_place == NormPlace::kAround ? 2 : 1;
  return {.products = 3 * shape_.hidden * shape_.ffn_hidden,
          .recomputed = 2 * shape_.hidden * shape_.ffn_hidden,
          .elements = (2 + 3 * norms) * shape_.hidden + 3 * shape_.ffn_hidden,
          .collectives = 2};
}

PartBytes MlpKind::bytes(const Cut& cut, int64_t element_bytes) const {
  const int tp = cut.tp;
  const int64_t ffn = (shape_.ffn_hidden + tp - 1) / tp;
  const int64_t norm_bytes = norm_bytes_of(shape_, element_bytes);
  const RowBytes input{shape_.hidden * element_bytes + norm_bytes, 2 * ffn * element_bytes};
  const int64_t shard = (shape_.hidden + tp - 1) / tp;
  const int64_t gathered = tp > 1 ? shape_.hidden : 0;
  PartBytes bytes;
  // Its input and the norm's scale; gate and up.
  bytes.saved = input;
  bytes.recomputed = input;
  // The normed input and output gradient; dgate-up and SwiGLU's output.
  bytes.until_weight = {2 * shape_.hidden * element_bytes, 3 * ffn * element_bytes};
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
