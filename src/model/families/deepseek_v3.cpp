#include <cmath>

#include "model/families/decoder_keys.h"
#include "model/families/deepseek_keys.h"
#include "model/families/experts_keys.h"
#include "model/families/family.h"
#include "model/model_ranges.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

constexpr TensorNames kGlmTensors[] = {
    {roles::kSharedGateUp, {"mlp.shared_experts.gate_proj.weight", "mlp.shared_experts.up_proj.weight"}},
    {roles::kSharedDown, {"mlp.shared_experts.down_proj.weight"}}};

// Scores of attention take one of YaRN's two factors: scale · m², with m = 0.1 · mscale_all_dim · ln(factor)
// + 1. Rotary positions take the other factor, divided by m.
void scale_scores(const Reader& config, Outline& outline) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const base::Json* const rope = base::find(config.json(), key);
    if (rope == nullptr || !rope->is_object()) continue;
    const base::Json* const all = base::find(*rope, "mscale_all_dim");
    if (all == nullptr || all->is_null()) continue;
    const double mscale = base::require_in(*rope, "mscale_all_dim", kModelRanges.factor, config.name());
    const double factor = base::require_in(*rope, "factor", kModelRanges.rope_factor, config.name());
    const double m = factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1;
    outline.attention_scale = m * m / std::sqrt(static_cast<double>(outline.head_dim));
  }
}

}  // namespace

extern const Names kGlmNames{kGlmTensors};

void read_latent(Reader& config, const DecoderKeys& keys, Outline& outline) {
  config.only("rope_interleave", true);
  Latent& latent = outline.latent;
  const bool whole = config.says("q_lora_rank") && config.find("q_lora_rank") == nullptr;
  latent.q_rank = whole ? 0 : config.count("q_lora_rank", kModelRanges.hidden);
  latent.kv_rank = config.count("kv_lora_rank", kModelRanges.hidden);
  latent.unrotated = config.count("qk_nope_head_dim", kModelRanges.head_dim);
  latent.rotated = config.count("qk_rope_head_dim", kModelRanges.head_dim);
  latent.values = config.count("v_head_dim", kModelRanges.head_dim);
  read_decoder(config, keys, outline);
  config.only("num_key_value_heads", outline.heads);
  config.only("qk_head_dim", outline.head_dim);
  outline.rotated = latent.rotated;
  scale_scores(config, outline);
}

void read_glm4_moe(Reader& config, Outline& outline) {
  read_decoder(config,
               {.kv_heads = 8, .norm_eps = 1e-5, .rotated = 0.5, .floors_heads = true, .biases = true},
               outline);
  outline.qkv_bias = config.has("attention_bias");
  if (config.has("use_qk_norm")) outline.qk_norm = QkNorm::kEachHead;
  read_scored_experts(config, {.dense = 1}, outline);
}

// Files without mlp_layer_types have an MLP in the first layer alone, so first_k_dense_replace must be 1.
void read_glm4_moe_lite(Reader& config, Outline& outline) {
  config.only("topk_method", "noaux_tc");
  config.only("scoring_func", "sigmoid");
  read_latent(config, {.kv_heads = 20, .norm_eps = 1e-5}, outline);
  if (config.find("mlp_layer_types") == nullptr) config.only("first_k_dense_replace", 1);
  read_scored_experts(config, {.dense = 1, .factor = 1.8}, outline);
  read_mlp_types(config, outline);
}

void read_deepseek_v2(Reader& config, Outline& outline) {
  config.pass({"aux_loss_alpha", "seq_aux", "ep_size"});
  read_latent(config, {}, outline);
  read_softmax_experts(config, outline);
}

void read_deepseek_v3(Reader& config, Outline& outline) {
  config.only("scoring_func", "sigmoid");
  config.only("topk_method", "noaux_tc");
  config.pass({"aux_loss_alpha", "seq_aux", "ep_size"});
  read_latent(config, {}, outline);
  read_scored_experts(config, {.dense = 3, .factor = 2.5, .groups = 8, .groups_chosen = 4}, outline);
}

void read_dots1(Reader& config, Outline& outline) {
  read_decoder(config, {.kv_heads = 32}, outline);
  outline.qk_norm = QkNorm::kEachHead;
  read_scored_experts(config, {.normalised = false}, outline);
  const int64_t first = config.count_or(62, "max_window_layers", {0, kModelRanges.layers.most});
  read_window(config, 4096, outline);
  read_layer_types(config, outline, [&](int64_t layer) { return outline.window > 0 && layer >= first; });
}

void read_solar_open(Reader& config, Outline& outline) {
  read_decoder(config, {.kv_heads = 8, .head_dim = 128, .norm_eps = 1e-5, .rope_theta = 1e6, .biases = true},
               outline);
  outline.qkv_bias = config.has("attention_bias");
  config.off("use_qk_norm");
  config.only("first_k_dense_replace", 0);
  read_scored_experts(config, {}, outline);
}

}  // namespace sluice::model
