#include "model/attention_kind.h"

#include <algorithm>

#include "base/text.h"

namespace sluice::model {

using base::text;

std::vector<Parameter> AttentionKind::parameters() const {
  const RowGroup q{shape_.q_width(), shape_.heads};
  const RowGroup asked{(shape_.gated ? 2 : 1) * shape_.q_width(), shape_.heads};
  const RowGroup kv{shape_.kv_width(), shape_.kv_heads};
  const double offset = shape_.norm_offset;
  const Parameter behind = norm(kNormBehind, "post_attention_layernorm.weight", shape_.hidden, offset);
  std::vector<Parameter> parameters = {
      shape_.norm_place == NormPlace::kBehind ? behind
                                              : norm(kNorm, "input_layernorm.weight", shape_.hidden, offset),
      matrix(kQkv, {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"},
             shape_.hidden, {asked, kv, kv})};
  if (shape_.qkv_bias) {
    parameters.push_back(matrix(kQkvBias,
                                {"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"},
                                1, {asked, kv, kv}, Start::kZero));
  }
  if (shape_.qk_norm == QkNorm::kEachHead) {
    parameters.push_back(norm(kQNorm, "self_attn.q_norm.weight", shape_.head_dim, offset));
    parameters.push_back(norm(kKNorm, "self_attn.k_norm.weight", shape_.head_dim, offset));
  } else if (shape_.qk_norm == QkNorm::kAllHeads) {
    parameters.push_back(matrix(kQNorm, {"self_attn.q_norm.weight"}, 1, {q}, Start::kOne));
    parameters.push_back(matrix(kKNorm, {"self_attn.k_norm.weight"}, 1, {kv}, Start::kOne));
  }
  if (shape_.sinks) {
    const RowGroup heads{shape_.heads, shape_.heads};
    parameters.push_back(matrix(kSinks, {"self_attn.sinks"}, 1, {heads}, Start::kZero));
  }
  Parameter out = matrix(kOut, {"self_attn.o_proj.weight"}, shape_.hidden, {q}, Start::kResidual);
  out.transposed = true;
  parameters.push_back(std::move(out));
  if (shape_.out_bias) {
    Parameter bias = norm(kOutBias, "self_attn.o_proj.bias", shape_.hidden);
    bias.start = Start::kZero;
    parameters.push_back(std::move(bias));
  }
  if (shape_.norm_place == NormPlace::kAround) parameters.push_back(behind);
  return parameters;
}

std::string AttentionKind::tp_fault(int tp) const {
  if (shape_.heads % tp != 0) return text("tp ", tp, " does not divide ", shape_.heads, " heads");
  if (shape_.kv_heads % tp != 0 && tp % shape_.kv_heads != 0) {
    return text("tp ", tp, " neither divides ", shape_.kv_heads, " kv_heads nor is a multiple of them");
  }
  return "";
}

// Elementwise: a norm (3 rows read or written), or two of them, and the sum with the residual (2), each row
// of hidden; rotation of queries and keys, and what attention writes.
TokenWork AttentionKind::work() const {
  const int64_t q = shape_.q_width(), kv = shape_.kv_width();
  const int64_t gate = shape_.gated ? q : 0;
  const int64_t products = shape_.hidden * (2 * q + gate + 2 * kv);
  const int64_t normed = shape_.qk_norm != QkNorm::kNone ? 2 * (q + kv) : 0;
  const int64_t norms = shape_.norm_place == NormPlace::kAround ? 2 : 1;
  return {.products = products,
          .recomputed = products,
          .attention = q,
          .window = type_.windowed ? shape_.window : 0,
          .elements = (2 + 3 * norms) * shape_.hidden + 2 * (q + kv) + normed + 4 * gate,
          .collectives = 2};
}

PartBytes AttentionKind::bytes(const Cut& cut, int64_t element_bytes) const {
  const int tp = cut.tp;
  const int64_t statistic_bytes = std::max<int64_t>(4, element_bytes);
  const int64_t heads = (shape_.heads + tp - 1) / tp;
  const int64_t q = heads * shape_.head_dim;
  // Key heads are not cut below one: with more ranks than heads, several ranks hold the same one.
  const int64_t qkv = q + 2 * std::max<int64_t>(1, shape_.kv_heads / tp) * shape_.head_dim;
  const int64_t hidden_bytes = shape_.hidden * element_bytes;
  // Of heads that are normed: what is normed.
  const bool norms_heads = shape_.qk_norm != QkNorm::kNone;
  const int64_t unnormed_bytes = norms_heads ? (q + (qkv - q) / 2) * element_bytes : 0;
  const int64_t norm_bytes = norm_bytes_of(shape_, element_bytes);
  const int64_t gate = shape_.gated ? q : 0;  // kept in any case
  PartBytes bytes;
  // Its input and what its norm needs; queries, keys and values, attention's output and log-sum-exp.
  bytes.saved = {hidden_bytes + norm_bytes,
                 unnormed_bytes + (qkv + q + gate) * element_bytes + heads * statistic_bytes};
  // A layer's input, attention's output and log-sum-exp.
  bytes.border = {hidden_bytes, (q + gate) * element_bytes + heads * statistic_bytes};
  // The normed input and output gradient; dqkv and attention's output.
  bytes.until_weight = {2 * hidden_bytes, (qkv + q + gate) * element_bytes};
  bytes.recomputed = {norm_bytes, unnormed_bytes + qkv * element_bytes};

  const int64_t shard = (shape_.hidden + tp - 1) / tp;
  const int64_t gathered = tp > 1 ? shape_.hidden : 0;
  // Queries, normed in a copy; in the backward with their gradients before and behind the norm.
  if (norms_heads) bytes.forward = q * element_bytes;
  // Queries and gates as one product beside what they are parted into; backward their gradients likewise.
  bytes.forward += 4 * gate * element_bytes;
  const int64_t norming = norms_heads ? 4 * q : 0;
  // Gradients take the places of queries, keys and values.
  const int64_t gating = shape_.gated ? qkv + 3 * gate : 0;
  bytes.backward = element_bytes * (gathered + gating + std::max({q, gathered + shard, 3 * shard, norming}));
  // In a ring they don't; two blocks of keys and values pass by, and of gradients what this lane adds, what
  // it has sent, what has come, each block as wide as keys and values together.
  const int64_t wide = statistic_bytes / element_bytes;  // of an accumulator, as elements
  const int64_t block = qkv - q;
  const int64_t narrow = wide > 1 ? block + wide * q : 0;  // a copy to send; wide gradients of queries
  bytes.ring_backward = element_bytes * (gathered + gating + q + qkv + (4 + wide) * block + narrow);
  // Through a window rows of two steps come and go, then gradients of them, and the lane's own stay wide.
  if (type_.windowed) bytes.ring_backward += element_bytes * (2 + wide) * block;
  return bytes;
}

// Keys and values of all tokens, also where a window sees the last ones alone.
CacheBytes AttentionKind::cache(const Cut& cut, int64_t element_bytes) const {
  return {.token = 2 * std::max<int64_t>(1, shape_.kv_heads / cut.tp) * shape_.head_dim * element_bytes};
}

}  // namespace sluice::model
