#include "model/shape.h"

#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "model/parameters.h"

namespace sluice::model {
namespace {

using base::InputError;
using base::text;

// The upper limits keep every product of two widths, and all bytes of a model, inside 64 bits.
constexpr int64_t kLargest = int64_t{1} << 24;
constexpr int64_t kMostParameters = int64_t{1} << 48;

void require_at_least_one(const char* key, int64_t value) {
  if (value < 1) throw InputError(text("model: ", key, " is ", value, " but must be at least 1"));
  if (value > kLargest)
    throw InputError(text("model: ", key, " is ", value, " but must be at most ", kLargest));
}

__int128 wide_parameters(const Shape& shape) {
  const __int128 hidden = shape.hidden;
  const __int128 attention = hidden * (2 * shape.q_width() + 2 * shape.kv_width());
  const __int128 layer = attention + 3 * hidden * shape.ffn_hidden + 2 * hidden;
  return shape.layers * layer + hidden + (shape.tie_embeddings ? 1 : 2) * shape.vocab * hidden;
}

void validate_rope(const Rope& rope) {
  const auto require_positive = [](const char* key, double value) {
    if (!(value > 0) || !std::isfinite(value)) {
      throw InputError(text("model: ", key, " is ", value, " but must be a positive number"));
    }
  };
  require_positive("rope_theta", rope.theta);
  if (rope.scaling == RopeScaling::kNone) return;
  require_positive("rope factor", rope.factor);
  if (rope.scaling == RopeScaling::kLlama3) {
    require_positive("rope low_freq_factor", rope.low_freq_factor);
    if (!(rope.high_freq_factor > rope.low_freq_factor)) {
      throw InputError(text("model: rope high_freq_factor ", rope.high_freq_factor,
                            " must be above low_freq_factor ", rope.low_freq_factor));
    }
  }
  if (rope.scaling == RopeScaling::kYarn) {
    require_positive("rope beta_slow", rope.beta_slow);
    if (!(rope.beta_fast >= rope.beta_slow) || !std::isfinite(rope.beta_fast)) {
      throw InputError(text("model: rope beta_fast ", rope.beta_fast,
                            " must be a number of at least beta_slow ", rope.beta_slow));
    }
    if (!(rope.theta > 1)) {
      throw InputError(text("model: rope_theta is ", rope.theta, " but must be above 1 for rope type yarn"));
    }
    if (!(rope.attention_factor >= 0)) {
      throw InputError(
          text("model: rope attention_factor is ", rope.attention_factor, " but must be positive"));
    }
  }
  if (rope.scaling != RopeScaling::kLinear) {
    require_at_least_one("rope original_max_position_embeddings", rope.original_max_position_embeddings);
  }
}

}  // namespace

void validate(const Shape& shape) {
  require_at_least_one("layers", shape.layers);
  require_at_least_one("hidden", shape.hidden);
  require_at_least_one("heads", shape.heads);
  require_at_least_one("kv_heads", shape.kv_heads);
  require_at_least_one("head_dim", shape.head_dim);
  require_at_least_one("ffn_hidden", shape.ffn_hidden);
  require_at_least_one("vocab", shape.vocab);
  if (shape.heads % shape.kv_heads != 0) {
    throw InputError(text("model: heads ", shape.heads, " is not a multiple of kv_heads ", shape.kv_heads));
  }
  if (wide_parameters(shape) > kMostParameters) {
    throw InputError(text("model: it has more than ", kMostParameters, " parameters"));
  }
  if (shape.head_dim % 2 != 0) {
    throw InputError(text("model: head_dim ", shape.head_dim, " is odd but rotary positions need pairs"));
  }
  if (!(shape.norm_eps >= 0) || !std::isfinite(shape.norm_eps)) {
    throw InputError(text("model: norm_eps is ", shape.norm_eps, " but must be at least 0"));
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
