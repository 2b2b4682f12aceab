#include <cmath>

#include "model/families/decoder_keys.h"
#include "model/families/family.h"
#include "model/families/rope_keys.h"
#include "model/model_ranges.h"

namespace sluice::model {
namespace {

// Reads a cap: `absent` if the key is absent, 0 (no cap) if it is null.
double cap(Reader& config, const char* key, double absent) {
  return config.number_or(config.says(key) ? 0.0 : absent, key, kModelRanges.factor);
}

// The common part of Gemma's generations. Every `pattern`-th layer has full attention.
void read_gemma(Reader& config, int64_t pattern, Outline& outline) {
  config.only("hidden_activation", "gelu_pytorch_tanh");
  outline.activation = Activation::kGeluTanh;
  outline.norm_offset = 1.0;
  outline.norm_place = NormPlace::kAround;
  outline.embedding_scale = std::sqrt(static_cast<double>(outline.hidden));
  outline.attention_scale =
      1 / std::sqrt(config.number_or(256.0, "query_pre_attn_scalar", kModelRanges.factor));
  read_window(config, 4096, outline);
  read_layer_types(config, outline, [&](int64_t layer) { return (layer + 1) % pattern != 0; });
}

}  // namespace

void read_gemma2(Reader& config, Outline& outline) {
  read_decoder(config, {.kv_heads = 4, .head_dim = 256, .tied = true, .activation = "gelu_pytorch_tanh"},
               outline);
  read_gemma(config, 2, outline);
  outline.score_cap = cap(config, "attn_logit_softcapping", 50.0);
  outline.logit_cap = cap(config, "final_logit_softcapping", 30.0);
}

void read_gemma3(Reader& config, Outline& outline) {
  read_decoder(config,
               {.kv_heads = 4,
                .heads = 8,
                .vocab = 262208,
                .head_dim = 256,
                .rope_theta = 1e6,
                .tied = true,
                .ropes_by_type = true,
                .activation = "gelu_pytorch_tanh"},
               outline);
  const int64_t old = config.count_or(6, "_sliding_window_pattern", kModelRanges.layers);
  read_gemma(config, config.count_or(old, "sliding_window_pattern", kModelRanges.layers), outline);
  outline.qk_norm = QkNorm::kEachHead;
  outline.score_cap = cap(config, "attn_logit_softcapping", 0.0);
  outline.logit_cap = cap(config, "final_logit_softcapping", 0.0);
  const std::optional<Rope> window_rope = window_rope_from_hugging_face(config, 10000.0);
  if (outline.window > 0) outline.window_rope = window_rope;
}

}  // namespace sluice::model
