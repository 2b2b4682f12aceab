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
  std::vector<Parameter> parameters = {norm(kNorm, "input_layernorm.weight", shape_.hidden)};
  if (latent.q_rank > 0) {
    parameters.push_back(whole(kQNarrow, "self_attn.q_a_proj.weight", latent.q_rank, shape_.hidden));
    parameters.push_back(norm(kQNorm, "self_attn.q_a_layernorm.weight", latent.q_rank));
  }
  const int64_t q_from = latent.q_rank > 0 ? latent.q_rank : shape_.hidden;
  parameters.push_back(matrix(kQ, {"self_attn.q_b_proj.weight"}, q_from, {by_head(key_width())}));
  parameters.push_back(whole(kKvNarrow, "self_attn.kv_a_proj_with_mqa.weight",
                             latent.kv_rank + latent.rotated, shape_.hidden));
  parameters.push_back(norm(kKvNorm, "self_attn.kv_a_layernorm.weight", latent.kv_rank));
  parameters.push_back(matrix(kKv, {"self_attn.kv_b_proj.weight"}, latent.kv_rank,
                              {by_head(latent.unrotated + latent.values)}));
  parameters.push_back(
      matrix(kOut, {"self_attn.o_proj.weight"}, shape_.hidden, {by_head(latent.values)}, Start::kResidual));
  parameters.back().transposed = true;
  if (shape_.qkv_bias) {
    parameters.push_back(whole("narrow_bias", "self_attn.a_proj.bias", narrow(), 1));
  }
  if (shape_.out_bias) {
    parameters.push_back(whole("attention_out_bias", "self_attn.o_proj.bias", shape_.hidden, 1));
  }
  for (Parameter& parameter : parameters) parameter.adapts = false;
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

// Queries, keys, values and what they attend to are all as wide as keys.
PartBytes LatentAttentionKind::bytes(const Cut& cut, int64_t element_bytes) const {
  const int tp = cut.tp;
  const int64_t statistic_bytes = std::max<int64_t>(4, element_bytes);
  const int64_t heads = (shape_.heads + tp - 1) / tp;
  const int64_t keys = heads * key_width(), values = heads * shape_.latent.values;
  const int64_t made = keys + heads * (shape_.latent.unrotated + shape_.latent.values);  // from narrow rows
  const int64_t hidden = shape_.hidden;
  PartBytes bytes;
  bytes.saved = {(hidden + narrow()) * element_bytes + statistic_bytes,
                 4 * keys * element_bytes + heads * statistic_bytes};
  bytes.border = {hidden * element_bytes, keys * element_bytes + heads * statistic_bytes};
  bytes.until_weight = {(2 * hidden + narrow()) * element_bytes, (made + narrow() + values) * element_bytes};
  bytes.recomputed = {statistic_bytes + narrow() * element_bytes, 3 * keys * element_bytes};
  bytes.forward = element_bytes * (2 * hidden + 2 * narrow() + made + values);
  bytes.backward = element_bytes * (3 * hidden + 3 * narrow() + 3 * keys + 2 * made + 2 * values);
  // As of attention: two blocks pass by, and gradients of one added, sent and come, some of them wide.
  const int64_t wide = statistic_bytes / element_bytes;
  const int64_t block = 2 * keys;
  bytes.ring_backward =
      bytes.backward + element_bytes * ((4 + wide) * block + (wide > 1 ? block + wide * keys : 0));
  return bytes;
}

// The narrow row that keys and values of all heads are made of, whole on every TP rank.
CacheBytes LatentAttentionKind::cache(const Cut&, int64_t element_bytes) const {
  return {.token = (shape_.latent.kv_rank + shape_.latent.rotated) * element_bytes};
}

}  // namespace sluice::model
