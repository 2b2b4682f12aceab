#include "model/families/decoder_keys.h"
#include "model/families/family.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

constexpr TensorNames kApertusTensors[] = {{roles::kAttentionNorm, {"attention_layernorm.weight"}},
                                           {roles::kMlpNorm, {"feedforward_layernorm.weight"}}};

// transformers stretches rotary positions by default, for files without the key.
base::Json apertus_rope(const Reader& config, Outline&) {
  base::Json changed = config.json();
  for (const char* key : {"rope_parameters", "rope_scaling", "rope_theta"}) {
    if (changed.contains(key) && !changed.at(key).is_null()) return changed;
  }
  changed["rope_parameters"] = {{"rope_type", "llama3"},  {"rope_theta", 12e6},
                                {"factor", 8.0},          {"original_max_position_embeddings", 8192},
                                {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}};
  return changed;
}

}  // namespace

extern const Names kApertusNames{kApertusTensors};

void read_apertus(Reader& config, Outline& outline) {
  read_decoder(
      config,
      {.norm_eps = 1e-5, .rope_theta = 12e6, .biases = true, .activation = "xielu", .own_rope = apertus_rope},
      outline);
  config.only("qk_norm", true);
  config.off("post_norm");
  outline.qkv_bias = outline.out_bias = config.has("attention_bias");
  outline.qk_norm = QkNorm::kEachHead;
  outline.mlp_gate = false;
  outline.activation = Activation::kXielu;
}

}  // namespace sluice::model
