#include <cmath>

#include "model/families/decoder_keys.h"
#include "model/families/experts_keys.h"
#include "model/families/family.h"
#include "model/layer_of.h"
#include "model/model_ranges.h"
#include "model/roles.h"

namespace sluice::model {
namespace {

constexpr TensorNames kHunyuanTensors[] = {
    {roles::kRouter, {"mlp.router.gate.weight"}},
    {roles::kCorrection, {"mlp.expert_bias"}},
    {roles::kSharedGateUp, {"mlp.shared_mlp.gate_proj.weight", "mlp.shared_mlp.up_proj.weight"}},
    {roles::kSharedDown, {"mlp.shared_mlp.down_proj.weight"}}};

constexpr TensorNames kHunyuanV1Tensors[] = {
    {roles::kQNorm, {"self_attn.query_layernorm.weight"}},
    {roles::kKNorm, {"self_attn.key_layernorm.weight"}},
    {roles::kRouter, {"mlp.gate.wg.weight"}},
    {roles::kSharedGateUp, {"mlp.shared_mlp.gate_proj.weight", "mlp.shared_mlp.up_proj.weight"}},
    {roles::kSharedDown, {"mlp.shared_mlp.down_proj.weight"}}};

// Rotary positions of type dynamic with an alpha have a larger base, independent of the sequence's length;
// the keys beside it have no effect.
base::Json take_alpha(const Reader& config, Outline& outline) {
  return with_own_rope(config, [&](base::Json& rope) {
    constexpr const char* kAlpha = "alpha";
    if (!rope.contains(kAlpha) || rope.at(kAlpha).is_null()) return;
    const double alpha = base::require_in(rope, kAlpha, kModelRanges.rope_factor, config.name());
    const base::Json* const outer = base::find(config.json(), "rope_theta");
    const bool says = rope.contains("rope_theta") && !rope.at("rope_theta").is_null();
    const double theta =
        says ? base::require_in(rope, "rope_theta", kModelRanges.rope_theta, config.name())
        : outer != nullptr && !outer->is_null()
            ? base::require_in(config.json(), "rope_theta", kModelRanges.rope_theta, config.name())
            : 10000.0;
    const auto width = static_cast<double>(outline.head_dim);
    rope = {{"rope_type", "default"}, {"rope_theta", theta * std::pow(alpha, width / (width - 2))}};
  });
}

void read_hunyuan_v1(Reader& config, Outline& outline) {
  read_decoder(config, {.norm_eps = 1e-5, .biases = true, .own_rope = take_alpha}, outline);
  outline.qkv_bias = outline.out_bias = config.has("attention_bias");
  config.only("use_qk_norm", true);
  config.off("use_cla");
  config.off("use_mixed_mlp_moe");
  config.pass({"cla_share_factor", "attention_head_dim", "mlp_bias", "norm_type", "position_embedding_xdrope",
               "use_rotary_pos_emb", "org_vocab_size", "pool_type", "add_classification_head", "class_num",
               "dense_list", "im_end_id", "im_newline_id", "im_start_id", "text_end_id", "text_start_id",
               "mask_init_id"});
  outline.qk_norm = QkNorm::kEachHead;
}

void norm_behind_rotation(Outline& outline) {
  change_attention(outline, [](Attention& own) { own.head_norm_style.behind_rotation = true; });
}

}  // namespace

extern const Names kHunyuanNames{kHunyuanTensors}, kHunyuanV1Names{kHunyuanV1Tensors};

void read_hunyuan_v1_dense(Reader& config, Outline& outline) {
  read_hunyuan_v1(config, outline);
  norm_behind_rotation(outline);
}

// Experts and the shared expert have the same width.
void read_hunyuan_v1_moe(Reader& config, Outline& outline) {
  read_hunyuan_v1(config, outline);
  Experts& experts = outline.experts;
  experts.count = config.count_or(1, "num_experts", kModelRanges.experts);
  experts.per_token = config.count_or(1, "moe_topk", {1, experts.count});
  experts.hidden = experts.shared_hidden = outline.ffn_hidden;
  experts.normalised = true;
  norm_behind_rotation(outline);
}

// Outputs of experts are added in the rows' type: enable_moe_fp32_combine is ignored.
void read_hunyuan3(Reader& config, Outline& outline) {
  read_decoder(config, {.kv_heads = 8, .head_dim = 128, .norm_eps = 1e-5, .rope_theta = 11158840.0}, outline);
  config.pass({"enable_moe_fp32_combine"});
  outline.qk_norm = QkNorm::kEachHead;
  read_scored_experts(config,
                      {.dense = 1,
                       .factor = 2.826,
                       .count_key = "num_experts",
                       .shared_key = "num_shared_experts",
                       .factor_key = "router_scaling_factor"},
                      outline);
  read_mlp_types(config, outline);
}

}  // namespace sluice::model
