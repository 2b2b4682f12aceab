#include "model/deepseek_families.h"

#include <cmath>

#include "base/json_fields.h"
#include "model/config_keys.h"
#include "model/experts_config.h"
#include "model/hugging_face_rope.h"
#include "model/shape_ranges.h"

namespace sluice::model {

using base::get_or;
using base::Json;

namespace {

// Experts by DeepSeek-V3's rule. What predicts further tokens is not trained, and its tensors are not read.
void read_scored_experts(const Json& config, int64_t absent_dense, const std::string& name, Shape& shape) {
  Experts& experts = shape.experts;
  experts.count = base::require_in(config, "n_routed_experts", kShapeRanges.experts, name);
  require_only(config, "num_local_experts", experts.count, name);
  experts.per_token =
      base::require_in(config, "num_experts_per_tok", base::Range<int64_t>{1, experts.count}, name);
  experts.hidden = width(config, "moe_intermediate_size", name);
  experts.shared_hidden =
      size_or(1, config, "n_shared_experts", {0, kShapeRanges.experts.most}, name) * experts.hidden;
  experts.normalised = get_or<bool>(config, "norm_topk_prob", true, name);
  experts.sigmoid = experts.corrected = true;
  experts.groups = size_or(1, config, "n_group", {1, experts.count}, name);
  experts.groups_chosen = size_or(1, config, "topk_group", {1, experts.groups}, name);
  if (config.contains("routed_scaling_factor"))
    experts.factor = base::require_in(config, "routed_scaling_factor", kShapeRanges.factor, name);
  read_expert_layers(config, name, shape, absent_dense);
  drop_usual_types(shape);
}

void write_scored_experts(const Shape& shape, Json& config) {
  const Experts& experts = shape.experts;
  config.update({{"n_routed_experts", experts.count},
                 {"n_shared_experts", experts.shared_hidden / experts.hidden},
                 {"num_experts_per_tok", experts.per_token},
                 {"moe_intermediate_size", experts.hidden},
                 {"norm_topk_prob", experts.normalised},
                 {"routed_scaling_factor", experts.factor},
                 {"n_group", experts.groups},
                 {"topk_group", experts.groups_chosen},
                 {"first_k_dense_replace", first_with_experts(shape)},
                 {"num_nextn_predict_layers", 0}});
}

}  // namespace

void read_glm4_moe(const Json& config, const std::string& name, Shape& shape) {
  shape.qkv_bias = get_or<bool>(config, "attention_bias", false, name);
  if (get_or<bool>(config, "use_qk_norm", false, name)) shape.qk_norm = QkNorm::kEachHead;
  read_scored_experts(config, 1, name, shape);
}

void write_glm4_moe(const Shape& shape, Json& config) {
  config["attention_bias"] = shape.qkv_bias;
  config["use_qk_norm"] = shape.qk_norm == QkNorm::kEachHead;
  write_scored_experts(shape, config);
  write_partial_rope(shape, config);
  config["pad_token_id"] = nullptr;
}

// Of yarn's two factors of queries and keys one is of scores: scale · m², with m = 0.1 · mscale_all_dim ·
// ln(factor) + 1; what is left of the other, rotary positions have.
void read_deepseek_v3(const Json& config, const std::string& name, Shape& shape) {
  require_off(config, "attention_bias", name);
  require_only(config, "rope_interleave", true, name);
  require_only(config, "scoring_func", "sigmoid", name);
  require_only(config, "topk_method", "noaux_tc", name);
  Latent& latent = shape.latent;
  latent.q_rank = base::require_in(config, "q_lora_rank", kShapeRanges.hidden, name);
  latent.kv_rank = base::require_in(config, "kv_lora_rank", kShapeRanges.hidden, name);
  latent.unrotated = base::require_in(config, "qk_nope_head_dim", kShapeRanges.head_dim, name);
  latent.rotated = base::require_in(config, "qk_rope_head_dim", kShapeRanges.head_dim, name);
  latent.values = base::require_in(config, "v_head_dim", kShapeRanges.head_dim, name);
  const auto heads = base::require_in(config, "num_attention_heads", kShapeRanges.heads, name);
  require_only(config, "num_key_value_heads", heads, name);
  require_only(config, "qk_head_dim", latent.unrotated + latent.rotated, name);
  shape.rotated = latent.rotated;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!config.contains(key) || !config.at(key).is_object()) continue;
    const Json& rope = config.at(key);
    if (!rope.contains("mscale_all_dim") || rope.at("mscale_all_dim").is_null()) continue;
    const double all = base::require_in(rope, "mscale_all_dim", kShapeRanges.factor, name);
    const double factor = base::require_in(rope, "factor", kShapeRanges.rope_factor, name);
    const double m = factor <= 1 ? 1.0 : 0.1 * all * std::log(factor) + 1;
    shape.attention_scale = m * m / std::sqrt(static_cast<double>(latent.unrotated + latent.rotated));
  }
  read_scored_experts(config, 3, name, shape);
}

void write_deepseek_v3(const Shape& shape, Json& config) {
  const Latent& latent = shape.latent;
  config.update({{"attention_bias", false},
                 {"rope_interleave", true},
                 {"q_lora_rank", latent.q_rank},
                 {"kv_lora_rank", latent.kv_rank},
                 {"qk_nope_head_dim", latent.unrotated},
                 {"qk_rope_head_dim", latent.rotated},
                 {"v_head_dim", latent.values},
                 {"head_dim", latent.rotated}});
  write_scored_experts(shape, config);
  config["pad_token_id"] = nullptr;
}

}  // namespace sluice::model
