// Families with recurrent layers, and Granite and OLMo, of whose layers some have others, as config.json
// files describe them. For the registry of families alone.
#pragma once

#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "model/family_tensors.h"
#include "model/shape.h"

namespace sluice::model {

inline constexpr std::string_view kGraniteKeys[] = {"embedding_multiplier", "residual_multiplier",
                                                    "attention_multiplier", "logits_scaling"};
inline constexpr std::string_view kOlmoHybridKeys[] = {
    "layer_types",           "linear_num_key_heads",   "linear_num_value_heads",  "linear_key_head_dim",
    "linear_value_head_dim", "linear_conv_kernel_dim", "linear_allow_neg_eigval", "linear_a_log_min",
    "linear_a_log_max",      "linear_dt_min",          "linear_dt_max",           "linear_dt_init_floor"};

inline constexpr std::string_view kQwenHybridKeys[] = {"layer_types",
                                                       "full_attention_interval",
                                                       "linear_num_key_heads",
                                                       "linear_num_value_heads",
                                                       "linear_key_head_dim",
                                                       "linear_value_head_dim",
                                                       "linear_conv_kernel_dim",
                                                       "num_experts",
                                                       "num_experts_per_tok",
                                                       "norm_topk_prob",
                                                       "moe_intermediate_size",
                                                       "decoder_sparse_step",
                                                       "mlp_only_layers",
                                                       "attn_output_gate",
                                                       "shared_expert_intermediate_size"};

inline constexpr std::string_view kGraniteHybridKeys[] = {"embedding_multiplier",
                                                          "residual_multiplier",
                                                          "attention_multiplier",
                                                          "logits_scaling",
                                                          "layer_types",
                                                          "num_local_experts",
                                                          "num_experts_per_tok",
                                                          "attn_output_gate",
                                                          "mamba_n_heads",
                                                          "mamba_n_groups",
                                                          "mamba_d_state",
                                                          "mamba_d_head",
                                                          "mamba_d_conv",
                                                          "mamba_expand",
                                                          "mamba_chunk_size",
                                                          "mamba_conv_bias",
                                                          "mamba_proj_bias",
                                                          "time_step_limit",
                                                          "intermediate_size",
                                                          "position_embedding_type",
                                                          "rope_theta"};
inline constexpr KeyName kGraniteHybridNames[] = {{"intermediate_size", "shared_intermediate_size"}};

inline constexpr std::string_view kMamba2Keys[] = {"num_heads",        "head_dim",
                                                   "state_size",       "expand",
                                                   "conv_kernel",      "n_groups",
                                                   "use_bias",         "use_conv_bias",
                                                   "time_step_rank",   "time_step_min",
                                                   "time_step_max",    "time_step_floor",
                                                   "residual_in_fp32", "rescale_prenorm_residual",
                                                   "chunk_size",       "time_step_limit",
                                                   "rms_norm",         "norm_before_gate"};
inline constexpr KeyName kMamba2Names[] = {{"num_attention_heads", "num_heads"},
                                           {"num_key_value_heads", "n_groups"},
                                           {"intermediate_size", ""},
                                           {"rms_norm_eps", "layer_norm_epsilon"}};

inline constexpr std::string_view kGlaKeys[] = {"expand_k",
                                                "expand_v",
                                                "hidden_ratio",
                                                "num_kv_heads",
                                                "feature_map",
                                                "attn_mode",
                                                "conv_size",
                                                "use_short_conv",
                                                "use_output_gate",
                                                "clamp_min",
                                                "elementwise_affine",
                                                "use_gk",
                                                "use_gv",
                                                "attn",
                                                "fuse_norm",
                                                "fuse_swiglu",
                                                "fuse_cross_entropy",
                                                "fuse_linear_cross_entropy",
                                                "use_l2warp",
                                                "attnres_block_size"};
inline constexpr KeyName kGlaNames[] = {{"num_attention_heads", "num_heads"},
                                        {"num_key_value_heads", "num_kv_heads"},
                                        {"rms_norm_eps", "norm_eps"}};

void read_granite(const base::Json& config, const std::string& name, Shape& shape);
void write_granite(const Shape& shape, base::Json& config);
void read_olmo2(const base::Json& config, const std::string& name, Shape& shape);
void write_olmo2(const Shape& shape, base::Json& config);
void read_olmo_hybrid(const base::Json& config, const std::string& name, Shape& shape);
void write_olmo_hybrid(const Shape& shape, base::Json& config);
void read_qwen3_5(const base::Json& config, const std::string& name, Shape& shape);
void read_qwen3_5_moe(const base::Json& config, const std::string& name, Shape& shape);
void read_qwen3_next(const base::Json& config, const std::string& name, Shape& shape);
void write_qwen3_5(const Shape& shape, base::Json& config);
void write_qwen3_5_moe(const Shape& shape, base::Json& config);
void write_qwen3_next(const Shape& shape, base::Json& config);
void read_granite_hybrid(const base::Json& config, const std::string& name, Shape& shape);
void write_granite_hybrid(const Shape& shape, base::Json& config);
void read_mamba2_model(const base::Json& config, const std::string& name, Shape& shape);
void write_mamba2_model(const Shape& shape, base::Json& config);
void read_gla_model(const base::Json& config, const std::string& name, Shape& shape);
void write_gla_model(const Shape& shape, base::Json& config);

}  // namespace sluice::model
