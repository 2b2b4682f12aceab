#include <cmath>

#include "model/families/decoder_keys.h"
#include "model/families/family.h"
#include "model/families/rope_keys.h"
#include "model/shape_ranges.h"

namespace sluice::model {
namespace {

// Reads a cap: `absent` if the key is absent, 0 (no cap) if it is null.
double cap(Reader& config, const char* key, double absent) {
  return config.number_or(config.says(key) ? 0.0 : absent, key, kShapeRanges.factor);
}

// The common part of Gemma's generations. Every `pattern`-th layer has full attention.
void read_gemma(Reader& config, int64_t pattern, Shape& shape) {
  config.only("hidden_activation", "gelu_pytorch_tanh");
  shape.activation = Activation::kGeluTanh;
  shape.norm_offset = 1.0;
  shape.norm_place = NormPlace::kAround;
  shape.embedding_scale = std::sqrt(static_cast<double>(shape.hidden));
  shape.attention_scale =
      1 / std::sqrt(config.number_or(256.0, "query_pre_attn_scalar", kShapeRanges.factor));
  read_window(config, 4096, shape);
  read_layer_types(config, shape, [&](int64_t layer) { return (layer + 1) % pattern != 0; });
}

}  // namespace

void read_gemma2(Reader& config, Shape& shape) {
  read_decoder(config, {.kv_heads = 4, .head_dim = 256, .tied = true, .activation = "gelu_pytorch_tanh"},
               shape);
  read_gemma(config, 2, shape);
  shape.score_cap = cap(config, "attn_logit_softcapping", 50.0);
  shape.logit_cap = cap(config, "final_logit_softcapping", 30.0);
}

void read_gemma3(Reader& config, Shape& shape) {
  read_decoder(config,
               {.kv_heads = 4,
                .heads = 8,
                .vocab = 262208,
                .head_dim = 256,
                .rope_theta = 1e6,
                .tied = true,
                .ropes_by_type = true,
                .activation = "gelu_pytorch_tanh"},
               shape);
  const int64_t old = config.count_or(6, "_sliding_window_pattern", kShapeRanges.layers);
  read_gemma(config, config.count_or(old, "sliding_window_pattern", kShapeRanges.layers), shape);
  shape.qk_norm = QkNorm::kEachHead;
  shape.score_cap = cap(config, "attn_logit_softcapping", 0.0);
  shape.logit_cap = cap(config, "final_logit_softcapping", 0.0);
  const std::optional<Rope> window_rope = window_rope_from_hugging_face(config, 10000.0);
  if (shape.window > 0) shape.window_rope = window_rope;
}

}  // namespace sluice::model
