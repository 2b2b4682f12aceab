#include "model/shape.h"

#include "base/error.h"
#include "base/text.h"
#include "model/parameters.h"
#include "model/shape_ranges.h"

namespace sluice::model {
namespace {

using base::InputError;
using base::text;

__int128 wide_parameters(const Shape& shape) {
  const __int128 hidden = shape.hidden;
  const __int128 attention = hidden * (2 * shape.q_width() + 2 * shape.kv_width());
  const __int128 layer = attention + 3 * hidden * shape.ffn_hidden + 2 * hidden;
  return shape.layers * layer + hidden + (shape.tie_embeddings ? 1 : 2) * shape.vocab * hidden;
}

void validate_rope(const Rope& rope) {
  const ShapeRanges& ranges = kShapeRanges;
  base::require_in_range("model: rope_theta", rope.theta, ranges.rope_theta);
  if (rope.scaling == RopeScaling::kNone) return;
  base::require_in_range("model: rope factor", rope.factor, ranges.rope_factor);
  if (rope.scaling == RopeScaling::kLinear) return;
  base::require_in_range("model: rope original_max_position_embeddings",
                         rope.original_max_position_embeddings, ranges.max_positions);
  if (rope.scaling == RopeScaling::kLlama3) {
    base::require_in_range("model: rope low_freq_factor", rope.low_freq_factor, ranges.rope_factor);
    base::require_in_range("model: rope high_freq_factor", rope.high_freq_factor, ranges.rope_factor);
    if (rope.high_freq_factor > rope.low_freq_factor) return;
    throw InputError(text("model: rope high_freq_factor is ", rope.high_freq_factor,
                          ": give one above low_freq_factor ", rope.low_freq_factor));
  }
  base::require_in_range("model: rope beta_slow", rope.beta_slow, ranges.rope_factor);
  base::require_in_range("model: rope beta_fast", rope.beta_fast, {rope.beta_slow, ranges.rope_factor.most});
  base::require_in_range("model: rope attention_factor", rope.attention_factor,
                         {0.0, ranges.rope_factor.most});
  if (!(rope.theta > 1)) {
    throw InputError(text("model: rope_theta is ", rope.theta, ": rope type yarn needs one above 1"));
  }
}

}  // namespace

void validate(const Shape& shape) {
  const ShapeRanges& ranges = kShapeRanges;
  base::require_in_range("model: layers", shape.layers, ranges.layers);
  base::require_in_range("model: hidden", shape.hidden, ranges.hidden);
  base::require_in_range("model: heads", shape.heads, ranges.heads);
  base::require_in_range("model: kv_heads", shape.kv_heads, ranges.heads);
  base::require_in_range("model: head_dim", shape.head_dim, ranges.head_dim);
  base::require_in_range("model: ffn_hidden", shape.ffn_hidden, ranges.ffn_hidden);
  base::require_in_range("model: vocab", shape.vocab, ranges.vocab);
  base::require_in_range("model: norm_eps", shape.norm_eps, ranges.norm_eps);
  if (shape.heads % shape.kv_heads != 0) {
    throw InputError(text("model: heads is ", shape.heads, ", no multiple of the ", shape.kv_heads,
                          " kv_heads: give one that is"));
  }
  if (shape.head_dim % 2 != 0) {
    throw InputError(text("model: head_dim is ", shape.head_dim, ": rotary positions need an even one"));
  }
  if (wide_parameters(shape) > ranges.parameters.most) {
    throw InputError(text("model: ", shape.layers, " layers of hidden ", shape.hidden, " and ffn_hidden ",
                          shape.ffn_hidden, " have more than ", ranges.parameters.most,
                          " parameters: lower one"));
  }
  validate_rope(shape.rope);
}

std::string tp_fault(const Shape& shape, int tp) {
  if (tp < 1) return text("tp is ", tp, " but must be at least 1");
  if (shape.heads % tp != 0) return text("tp ", tp, " does not divide ", shape.heads, " heads");
  if (shape.kv_heads % tp != 0 && tp % shape.kv_heads != 0) {
    return text("tp ", tp, " neither divides ", shape.kv_heads, " kv_heads nor is a multiple of them");
  }
  if (tp > shape.ffn_hidden) return text("tp ", tp, " is above ffn_hidden ", shape.ffn_hidden);
  if (tp > shape.vocab) return text("tp ", tp, " is above vocab ", shape.vocab);
  return "";
}

int64_t Shape::parameters() const { return static_cast<int64_t>(wide_parameters(*this)); }

namespace {

Shape llama(int64_t layers, int64_t hidden, int64_t heads, int64_t ffn_hidden) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = heads,
          .head_dim = hidden / heads,
          .ffn_hidden = ffn_hidden,
          .vocab = 32000};
}

}  // namespace

Shape named_shape(const std::string& name) {
  // 7B and 13B: Touvron et al., LLaMA 2, and its published configurations. 32B: the shape of Hydraulis'
  // experiments in Hetu's training scripts (60 layers of width 6656, 64 heads, FFN 17920).
  if (name == "llama-7b") return llama(32, 4096, 32, 11008);
  if (name == "llama-13b") return llama(40, 5120, 40, 13824);
  if (name == "llama-32b") return llama(60, 6656, 64, 17920);
  throw InputError(
      text("model '", name, "' is unknown: choose llama-7b, llama-13b, llama-32b or a Hugging Face folder"));
}

int64_t dense_flops_per_token(const Shape& shape) {
  const int64_t attention = shape.hidden * (2 * shape.q_width() + 2 * shape.kv_width());
  const int64_t mlp = 3 * shape.hidden * shape.ffn_hidden;
  return 2 * shape.layers * (attention + mlp);
}

int64_t head_flops_per_token(const Shape& shape) { return 2 * shape.hidden * shape.vocab; }

double attention_flops(const Shape& shape, int64_t length) {
  // Two products (scores, and scores times values) of 2·q_width FLOPs for each of length²/2 pairs.
  const auto tokens = static_cast<double>(length);
  return 2.0 * static_cast<double>(shape.q_width()) * tokens * tokens;
}

}  // namespace sluice::model
