#include "model/families/decoder_keys.h"
#include "model/families/family.h"
#include "model/layer_of.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

constexpr TensorNames kGlm4Tensors[] = {{roles::kAttentionNormBehind, {"post_self_attn_layernorm.weight"}},
                                        {roles::kMlpNorm, {"post_attention_layernorm.weight"}},
                                        {roles::kMlpNormBehind, {"post_mlp_layernorm.weight"}},
                                        {roles::kGateUp, {"mlp.gate_up_proj.weight"}}};

}  // namespace

extern const Names kGlm4Names{kGlm4Tensors};

void read_glm4(Reader& config, Outline& outline) {
  read_decoder(config,
               {.kv_heads = 2, .head_dim = 128, .norm_eps = 1.5625e-7, .rotated = 0.5, .biases = true},
               outline);
  outline.qkv_bias = !config.lacks("attention_bias");
  outline.norm_place = NormPlace::kAround;
  change_attention(outline, [](Attention& own) { own.turning = Turning::kNeighbours; });
}

}  // namespace sluice::model
