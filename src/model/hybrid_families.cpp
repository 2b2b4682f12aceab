#include "model/hybrid_families.h"

#include <algorithm>

#include "base/json_fields.h"
#include "base/text.h"
#include "model/config_keys.h"
#include "model/experts_config.h"
#include "model/hugging_face_rope.h"
#include "model/recurrent_config.h"
#include "model/shape_ranges.h"

namespace sluice::model {
namespace {

using base::get_or;
using base::Json;

double factor(const Json& config, const char* key, const std::string& name) {
  return config.contains(key) ? base::require_in(config, key, kShapeRanges.factor, name) : 1.0;
}

// Positions turn nothing where the file says that their base is null.
bool has_rope(const Json& config) {
  const auto null = [](const Json& in) { return in.contains("rope_theta") && in.at("rope_theta").is_null(); };
  const bool own = config.contains("rope_parameters") && config.at("rope_parameters").is_object();
  return !null(own ? config.at("rope_parameters") : config);
}

// What Qwen's hybrids have in common.
void read_qwen_hybrid(const Json& config, const std::string& name, Shape& shape) {
  shape.qk_norm = QkNorm::kEachHead;
  shape.norm_offset = 1.0;
  shape.gated = true;
  require_only(config, "attn_output_gate", true, name);
  const auto pattern = get_or<int64_t>(config, "full_attention_interval", 4, name);
  base::require_in_range(name + ": full_attention_interval", pattern, kShapeRanges.layers);
  read_recurrent_types(config, pattern, name, shape);
  const double eps = get_or<double>(config, "rms_norm_eps", 1e-6, name);
  read_gated_delta(
      config, name,
      {.key_heads = 16, .value_heads = 32, .key_width = 128, .value_width = 128, .norm_eps = eps}, shape);
}

void read_hybrid_experts(const Json& config, const std::string& name, Shape& shape) {
  read_qwen_hybrid(config, name, shape);
  read_experts(config, width(config, "moe_intermediate_size", name), name, shape);
  read_expert_layers(config, name, shape);
  shape.experts.normalised = get_or<bool>(config, "norm_topk_prob", true, name);
  shape.experts.shared_hidden = width(config, "shared_expert_intermediate_size", name);
  shape.experts.shared_gate = true;
}

}  // namespace

void read_granite(const Json& config, const std::string& name, Shape& shape) {
  shape.embedding_scale = factor(config, "embedding_multiplier", name);
  shape.residual_scale = factor(config, "residual_multiplier", name);
  shape.attention_scale = factor(config, "attention_multiplier", name);
  shape.logit_divisor = factor(config, "logits_scaling", name);
}

void write_granite(const Shape& shape, Json& config) {
  config["attention_bias"] = false;
  config["mlp_bias"] = false;
  config["embedding_multiplier"] = shape.embedding_scale;
  config["residual_multiplier"] = shape.residual_scale;
  config["attention_multiplier"] = shape.attention_scale;
  config["logits_scaling"] = shape.logit_divisor;
}

void read_olmo2(const Json&, const std::string&, Shape& shape) {
  shape.norm_place = NormPlace::kBehind;
  shape.qk_norm = QkNorm::kAllHeads;
}

void write_olmo2(const Shape&, Json& config) { config["attention_bias"] = false; }

// How decays and steps are drawn is said by Start, so the file's bounds of them say nothing.
void read_olmo_hybrid(const Json& config, const std::string& name, Shape& shape) {
  read_olmo2(config, name, shape);
  shape.block_types.assign(static_cast<size_t>(shape.layers), {.rotates = has_rope(config)});
  read_recurrent_types(config, 4, name, shape);
  const auto hidden = base::require_in(config, "hidden_size", kShapeRanges.hidden, name);
  const auto heads = base::require_in(config, "num_attention_heads", kShapeRanges.heads, name);
  Recurrent absent{.key_heads = heads, .value_heads = heads};
  const auto keys = get_or<int64_t>(config, "linear_num_key_heads", heads, name);
  absent.key_width = 3 * hidden / (4 * std::max<int64_t>(1, keys));
  absent.value_width = 2 * get_or<int64_t>(config, "linear_key_head_dim", absent.key_width, name);
  absent.rate_scale = get_or<bool>(config, "linear_allow_neg_eigval", true, name) ? 2.0 : 1.0;
  read_gated_delta(config, name, absent, shape);
}

void write_olmo_hybrid(const Shape& shape, Json& config) {
  write_olmo2(shape, config);
  write_gated_delta(shape, config);
  config["linear_allow_neg_eigval"] = shape.recurrent.rate_scale > 1;
  const bool rotates = std::ranges::any_of(shape.block_types, &BlockType::rotates);
  if (!rotates) {
    config.erase("rope_theta");
    config.erase("rope_scaling");
    config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", nullptr}};
  }
  config["pad_token_id"] = nullptr;
}

void read_qwen3_5(const Json& config, const std::string& name, Shape& shape) {
  for (const char* key : {"num_experts", "moe_intermediate_size"}) require_only(config, key, nullptr, name);
  read_qwen_hybrid(config, name, shape);
}

void read_qwen3_5_moe(const Json& config, const std::string& name, Shape& shape) {
  require_only(config, "norm_topk_prob", true, name);
  read_hybrid_experts(config, name, shape);
}

void read_qwen3_next(const Json& config, const std::string& name, Shape& shape) {
  read_hybrid_experts(config, name, shape);
  shape.recurrent.by_key_head = true;
}

void write_qwen3_5(const Shape& shape, Json& config) {
  config["attention_bias"] = false;
  write_gated_delta(shape, config);
  write_partial_rope(shape, config);
}

void write_qwen3_5_moe(const Shape& shape, Json& config) {
  write_qwen3_5(shape, config);
  config["num_experts"] = shape.experts.count;
  config["num_experts_per_tok"] = shape.experts.per_token;
  config["moe_intermediate_size"] = shape.experts.hidden;
  config["shared_expert_intermediate_size"] = shape.experts.shared_hidden;
}

void write_qwen3_next(const Shape& shape, Json& config) {
  write_qwen3_5_moe(shape, config);
  config["norm_topk_prob"] = shape.experts.normalised;
  write_expert_layers(shape, config);
}

// Experts of the larger ones, which files stack, are not computed.
void read_granite_hybrid(const Json& config, const std::string& name, Shape& shape) {
  if (!config.contains("num_local_experts"))
    refuse(name, "num_local_experts", "absent", "models without experts: add num_local_experts = 0");
  require_only(config, "num_local_experts", 0, name);
  read_granite(config, name, shape);
  const bool said =
      config.contains("position_embedding_type") && !config.at("position_embedding_type").is_null();
  const auto positions = said ? base::require<std::string>(config, "position_embedding_type", name) : "nope";
  if (positions != "nope" && positions != "rope")
    refuse(name, "position_embedding_type", positions, "rope, nope and null");
  shape.block_types.assign(static_cast<size_t>(shape.layers), {.rotates = positions == "rope"});
  if (config.contains("layer_types")) {
    read_recurrent_types(config, 1, name, shape);
  } else {
    for (BlockType& type : shape.block_types) type.recurrent = true;
  }
  read_mamba2(config, kGraniteMambaKeys, name, shape);
}

void write_granite_hybrid(const Shape& shape, Json& config) {
  write_granite(shape, config);
  config.erase("mlp_bias");
  write_mamba2(shape, kGraniteMambaKeys, config);
  write_recurrent_types(shape, config);
  config["num_local_experts"] = 0;
  const bool rotates = std::ranges::any_of(shape.block_types, &BlockType::rotates);
  config["position_embedding_type"] = rotates ? Json("rope") : Json();
  config["pad_token_id"] = nullptr;
}

// Without an MLP: what mixes tokens is all that a block does.
void read_mamba2_model(const Json& config, const std::string& name, Shape& shape) {
  require_only(config, "rms_norm", true, name);
  require_only(config, "norm_before_gate", false, name);
  shape.block_types.assign(static_cast<size_t>(shape.layers), {.rotates = false, .recurrent = true});
  read_mamba2(config, kMamba2ModelKeys, name, shape);
}

void write_mamba2_model(const Shape& shape, Json& config) {
  write_mamba2(shape, kMamba2ModelKeys, config);
  config["time_step_rank"] = "auto";
}

void read_gla_model(const Json& config, const std::string& name, Shape& shape) {
  for (const char* key : {"feature_map", "clamp_min", "attn", "attnres_block_size"})
    require_only(config, key, nullptr, name);
  for (const char* key : {"use_output_gate", "elementwise_affine", "use_gk"})
    require_only(config, key, true, name);
  for (const char* key : {"use_short_conv", "use_gv"}) require_only(config, key, false, name);
  shape.block_types.assign(static_cast<size_t>(shape.layers), {.rotates = false, .recurrent = true});
  read_gla(config, name, shape);
}

void write_gla_model(const Shape& shape, Json& config) {
  write_gla(shape, config);
  config["hidden_act"] = "swish";
}

}  // namespace sluice::model
