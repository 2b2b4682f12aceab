#include <cmath>

#include "model/families/decoder_keys.h"
#include "model/families/experts_keys.h"
#include "model/families/family.h"
#include "model/roles.h"
#include "model/shape_ranges.h"

namespace sluice::model {
namespace {

constexpr TensorNames kGlmTensors[] = {
    {roles::kSharedGateUp, {"mlp.shared_experts.gate_proj.weight", "mlp.shared_experts.up_proj.weight"}},
    {roles::kSharedDown, {"mlp.shared_experts.down_proj.weight"}}};

// Of yarn's two factors of queries and keys one is of scores: scale · m², with m = 0.1 · mscale_all_dim ·
// ln(factor) + 1; what is left of the other, rotary positions have.
void scale_scores(const Reader& config, Shape& shape) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const base::Json* const rope = base::find(config.json(), key);
    if (rope == nullptr || !rope->is_object()) continue;
    const base::Json* const all = base::find(*rope, "mscale_all_dim");
    if (all == nullptr || all->is_null()) continue;
    const double mscale = base::require_in(*rope, "mscale_all_dim", kShapeRanges.factor, config.name());
    const double factor = base::require_in(*rope, "factor", kShapeRanges.rope_factor, config.name());
    const double m = factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1;
    shape.attention_scale = m * m / std::sqrt(static_cast<double>(shape.head_dim));
  }
}

void read_latent(Reader& config, const DecoderKeys& keys, Shape& shape) {
  config.only("rope_interleave", true);
  Latent& latent = shape.latent;
  latent.q_rank = config.count("q_lora_rank", kShapeRanges.hidden);
  latent.kv_rank = config.count("kv_lora_rank", kShapeRanges.hidden);
  latent.unrotated = config.count("qk_nope_head_dim", kShapeRanges.head_dim);
  latent.rotated = config.count("qk_rope_head_dim", kShapeRanges.head_dim);
  latent.values = config.count("v_head_dim", kShapeRanges.head_dim);
  read_decoder(config, keys, shape);
  config.only("num_key_value_heads", shape.heads);
  config.only("qk_head_dim", shape.head_dim);
  shape.rotated = latent.rotated;
  scale_scores(config, shape);
}

}  // namespace

extern const Names kGlmNames{kGlmTensors};

void read_glm4_moe(Reader& config, Shape& shape) {
  read_decoder(config, {.kv_heads = 8, .norm_eps = 1e-5, .rotated = 0.5, .biases = true}, shape);
  shape.qkv_bias = config.has("attention_bias");
  if (config.has("use_qk_norm")) shape.qk_norm = QkNorm::kEachHead;
  read_scored_experts(config, 1, shape);
}

void read_deepseek_v3(Reader& config, Shape& shape) {
  config.only("scoring_func", "sigmoid");
  config.only("topk_method", "noaux_tc");
  config.pass({"aux_loss_alpha", "seq_aux", "ep_size"});
  read_latent(config, {}, shape);
  read_scored_experts(config, 3, shape);
}

// GLM 4.7 Flash: latent attention, and experts from the second layer on.
void read_glm4_moe_lite(Reader& config, Shape& shape) {
  read_latent(config, {.norm_eps = 1e-5}, shape);
  read_scored_experts(config, 1, shape);
  if (!config.says("routed_scaling_factor")) shape.experts.factor = 1.8;
}

}  // namespace sluice::model
