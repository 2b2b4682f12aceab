#include "model/families/decoder_keys.h"
#include "model/families/family.h"

namespace sluice::model {

void read_stablelm(Reader& config, Outline& outline) {
  read_decoder(config, {.kv_heads = 32, .norm_eps = 1e-5, .rotated = 0.25, .norm_eps_key = "layer_norm_eps"},
               outline);
  config.off("use_parallel_residual");
  config.off("qk_layernorm");
  config.only("hidden_dropout", 0.0);
  config.only("rotary_scaling_factor", 1.0);
  outline.norm = {.kind = NormKind::kLayer, .biases = true};
  outline.qkv_bias = config.has("use_qkv_bias");
}

}  // namespace sluice::model
