// Small models of families whose readers make layers themselves, for tests of every module. Header-only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/json.h"
#include "model/hugging_face.h"

namespace sluice::model {

// A family's model with the sizes of `like`; `own`: other keys of its config.json.
inline Shape family_shape(const Shape& like, const char* family, const char* own) {
  base::Json config = {{"model_type", family},
                       {"num_hidden_layers", like.layers},
                       {"hidden_size", like.hidden},
                       {"num_attention_heads", like.heads},
                       {"num_key_value_heads", like.kv_heads},
                       {"head_dim", like.head_dim},
                       {"intermediate_size", like.ffn_hidden},
                       {"vocab_size", like.vocab},
                       {"tie_word_embeddings", like.tie_embeddings}};
  config.update(base::Json::parse(own));
  return shape_from_hugging_face(config, family);
}

// Convolutions of channels, attention, experts.
inline Shape lfm2_shape(const Shape& like) {
  return family_shape(like, "lfm2_moe", R"({"num_dense_layers": 1, "num_experts": 5, "num_experts_per_tok": 2,
      "moe_intermediate_size": 14, "conv_L_cache": 5, "conv_bias": true, "head_dim": null,
      "full_attn_idxs": [2]})");
}
// The MLP beside attention, rotation of neighbours, windows.
inline Shape cohere2_shape(const Shape& like) {
  return family_shape(like, "cohere2",
                      R"({"sliding_window": 5, "sliding_window_pattern": 3, "head_dim": null})");
}
// Queries that grow with positions.
inline Shape ministral3_shape(const Shape& like) {
  return family_shape(like, "ministral3", R"({"max_position_embeddings": 64, "rope_parameters": {
      "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8, "rope_theta": 10000.0,
      "llama_4_scaling_beta": 0.4}})");
}
// Heads normed behind their rotation.
inline Shape hunyuan_shape(const Shape& like) { return family_shape(like, "hunyuan_v1_dense", "{}"); }
// Norms without weights, and a norm of embeddings.
inline Shape nanochat_shape(const Shape& like) {
  return family_shape(like, "nanochat", R"({"hidden_act": "relu2"})");
}
// Mamba-2 and attention side by side, with factors.
inline Shape falcon_h1_shape(const Shape& like) {
  return family_shape(like, "falcon_h1", R"({"mamba_d_ssm": 36, "mamba_n_heads": 12, "mamba_n_groups": 6,
      "mamba_d_state": 4, "key_multiplier": 0.5, "ssm_multipliers": [1, 2, 0.5, 1.5, 0.75],
      "attention_out_multiplier": 0.8, "mlp_multipliers": [0.7, 1.2]})");
}
// Gates in rows of their own, and norms behind experts.
inline Shape afmoe_shape(const Shape& like) {
  return family_shape(like, "afmoe", R"({"sliding_window": 5, "num_experts": 6, "num_experts_per_tok": 2,
      "moe_intermediate_size": 9, "num_shared_experts": 1})");
}

// Two widths of heads, keys that are values, experts beside the MLP, a factor for each layer.
inline Shape gemma4_shape(const Shape& like) {
  return family_shape(like, "gemma4_text", R"({"sliding_window": 5, "attention_k_eq_v": true,
      "num_global_key_value_heads": 1, "global_head_dim": 10, "hidden_size_per_layer_input": 0,
      "enable_moe_block": true, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 9})");
}
// Embeddings by layer. The last layer of each kind among the first three lends its keys and values to the
// layers behind.
inline Shape gemma4_e_shape(const Shape& like) {
  Shape all = like;
  all.layers = std::max<int64_t>(5, like.layers);
  base::Json types = base::Json::array();
  for (int64_t layer = all.layers; layer-- > 0;)
    types.push_back(layer % 2 == 0 ? "full_attention" : "sliding_attention");
  return family_shape(all, "gemma4_text",
                      base::Json{{"sliding_window", 5},
                                 {"global_head_dim", 10},
                                 {"hidden_size_per_layer_input", 7},
                                 {"vocab_size_per_layer_input", like.vocab},
                                 {"num_kv_shared_layers", all.layers - 3},
                                 {"use_double_wide_mlp", true},
                                 {"layer_types", types}}
                          .dump()
                          .c_str());
}
// Attention by chunks, queries that grow, experts whose weights multiply their input.
inline Shape llama4_shape(const Shape& like) {
  return family_shape(like, "llama4_text", R"({"attention_chunk_size": 4, "no_rope_layer_interval": 2,
      "floor_scale": 3, "num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 9,
      "intermediate_size_mlp": 14, "interleave_moe_layer_step": 2})");
}
// Experts by SparseMixer, biases of attention and of logits.
inline Shape phimoe_shape(const Shape& like) {
  return family_shape(like, "phimoe", R"({"attention_bias": true, "lm_head_bias": true,
      "num_local_experts": 5, "num_experts_per_tok": 2, "router_jitter_noise": 0.4})");
}
// A delta rule whose states decay by channel, latent attention without rotation, experts.
inline Shape kimi_linear_shape(const Shape& like) {
  return family_shape(like, "kimi_linear", R"({"linear_num_heads": 6, "linear_head_dim": 4,
      "num_key_value_heads": null, "kv_lora_rank": 7, "qk_nope_head_dim": 6, "qk_rope_head_dim": 2,
      "v_head_dim": 5, "num_local_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 9,
      "layer_types": null, "first_k_dense_replace": 1})");
}

}  // namespace sluice::model
