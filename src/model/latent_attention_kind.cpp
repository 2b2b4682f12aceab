#include "model/latent_attention_kind.h"

#include <algorithm>

#include "base/text.h"

namespace sluice::model {

std::vector<Parameter> LatentAttentionKind::parameters() const {
  const Latent& latent = shape_.latent;
  const auto by_head = [&](int64_t width) { return RowGroup{shape_.heads * width, shape_.heads}; };
  const auto whole = [](std::string_view role, std::string_view tensor, int64_t rows, int64_t columns) {
    Parameter parameter = matrix(role, {std::string(tensor)}, columns, {{rows, 0}});
    parameter.replicated = true;
    return parameter;
  };
  std::vector<Parameter> parameters = {norm("attention_norm", "input_layernorm.weight", shape_.hidden)};
  if (latent.q_rank > 0) {
    parameters.push_back(whole("q_narrow", "self_attn.q_a_proj.weight", latent.q_rank, shape_.hidden));
    parameters.push_back(norm("q_norm", "self_attn.q_a_layernorm.weight", latent.q_rank));
  }
  const int64_t q_from = latent.q_rank > 0 ? latent.q_rank : shape_.hidden;
  parameters.push_back(matrix("q", {"self_attn.q_b_proj.weight"}, q_from, {by_head(key_width())}));
  parameters.push_back(whole("kv_narrow", "self_attn.kv_a_proj_with_mqa.weight",
                             latent.kv_rank + latent.rotated, shape_.hidden));
  parameters.push_back(norm("kv_norm", "self_attn.kv_a_layernorm.weight", latent.kv_rank));
  parameters.push_back(matrix("kv", {"self_attn.kv_b_proj.weight"}, latent.kv_rank,
                              {by_head(latent.unrotated + latent.values)}));
  parameters.push_back(matrix("attention_out", {"self_attn.o_proj.weight"}, shape_.hidden,
                              {by_head(latent.values)}, Start::kResidual));
  if (shape_.qkv_bias) {
    parameters.push_back(whole("narrow_bias", "self_attn.a_proj.bias", narrow(), 1));
  }
  if (shape_.out_bias) {
    parameters.push_back(whole("attention_out_bias", "self_attn.o_proj.bias", shape_.hidden, 1));
  }
  return parameters;
}

std::string LatentAttentionKind::tp_fault(int tp) const {
  return shape_.heads % tp != 0 ? base::text("tp ", tp, " does not divide ", shape_.heads, " heads") : "";
}

// Elementwise: a norm and the sum with the residual, the norms of narrow rows (3 each), what is read and
// written of queries, keys and values to turn and to join them, and what attention writes.
TokenWork LatentAttentionKind::work() const {
  const Latent& latent = shape_.latent;
  const int64_t q_from = latent.q_rank > 0 ? latent.q_rank : shape_.hidden;
  const int64_t keys = shape_.heads * key_width(), values = shape_.heads * latent.values;
  const int64_t products = shape_.hidden * narrow() + q_from * keys +
                           latent.kv_rank * shape_.heads * (latent.unrotated + latent.values) +
                           values * shape_.hidden;
  return {.products = products,
          .recomputed = products,
          .attention = (keys + values) / 2,
          .elements = 5 * shape_.hidden + 3 * narrow() + 4 * keys + 3 * values,
          .collectives = 2};
}

PartBytes LatentAttentionKind::bytes(const Cut& cut, int64_t element_bytes) const {
  const int tp = cut.tp;
  const int64_t statistic_bytes = std::max<int64_t>(4, element_bytes);
  const int64_t heads = (shape_.heads + tp - 1) / tp;
  const int64_t keys = heads * key_width(), values = heads * shape_.latent.values;
  const int64_t all = 2 * keys + 2 * values;  // queries, keys, values and attention's output
  const RowBytes input{shape_.hidden * element_bytes + statistic_bytes, 0};
  PartBytes bytes;
  bytes.saved = {input.shared,
                 (all + narrow()) * element_bytes + heads * statistic_bytes + 2 * statistic_bytes};
  bytes.border = {shape_.hidden * element_bytes, values * element_bytes + heads * statistic_bytes};
  bytes.until_weight = {2 * shape_.hidden * element_bytes, (all + 2 * narrow()) * element_bytes};
  bytes.recomputed = {statistic_bytes, (all - values + narrow()) * element_bytes + 2 * statistic_bytes};
  bytes.forward = element_bytes * keys;
  bytes.backward = element_bytes * (2 * shape_.hidden + narrow() + keys + values);
  // As of attention: two blocks pass by, and gradients of one added, sent and come, some of them wide.
  const int64_t wide = statistic_bytes / element_bytes;
  const int64_t block = keys + values;
  bytes.ring_backward =
      bytes.backward + element_bytes * ((4 + wide) * block + (wide > 1 ? block + wide * keys : 0));
  return bytes;
}

}  // namespace sluice::model
