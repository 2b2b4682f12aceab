// DeepSeek-V3, and what routes as it does, as config.json files describe them. For the registry of families
// alone.
#pragma once

#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "model/shape.h"

namespace sluice::model {

inline constexpr std::string_view kGlmKeys[] = {"attention_bias",
                                                "use_qk_norm",
                                                "partial_rotary_factor",
                                                "n_routed_experts",
                                                "n_shared_experts",
                                                "num_local_experts",
                                                "num_experts_per_tok",
                                                "moe_intermediate_size",
                                                "norm_topk_prob",
                                                "routed_scaling_factor",
                                                "n_group",
                                                "topk_group",
                                                "moe_layer_freq",
                                                "first_k_dense_replace",
                                                "num_nextn_predict_layers",
                                                "num_mtp_layers"};

inline constexpr std::string_view kDeepSeekKeys[] = {"attention_bias",
                                                     "q_lora_rank",
                                                     "kv_lora_rank",
                                                     "qk_nope_head_dim",
                                                     "qk_rope_head_dim",
                                                     "v_head_dim",
                                                     "rope_interleave",
                                                     "n_routed_experts",
                                                     "n_shared_experts",
                                                     "num_local_experts",
                                                     "num_experts_per_tok",
                                                     "moe_intermediate_size",
                                                     "norm_topk_prob",
                                                     "routed_scaling_factor",
                                                     "n_group",
                                                     "topk_group",
                                                     "moe_layer_freq",
                                                     "first_k_dense_replace",
                                                     "num_nextn_predict_layers",
                                                     "num_mtp_layers",
                                                     "scoring_func",
                                                     "topk_method",
                                                     "aux_loss_alpha",
                                                     "seq_aux",
                                                     "ep_size",
                                                     "head_dim",
                                                     "qk_head_dim"};

void read_glm4_moe(const base::Json& config, const std::string& name, Shape& shape);
void write_glm4_moe(const Shape& shape, base::Json& config);
void read_deepseek_v3(const base::Json& config, const std::string& name, Shape& shape);
void write_deepseek_v3(const Shape& shape, base::Json& config);

}  // namespace sluice::model
