// Small models of families whose readers make layers themselves, for tests of every module. Header-only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <variant>

#include "base/json.h"
#include "model/hugging_face.h"
#include "model/layer_of.h"
#include "model/outline.h"

namespace sluice::model {

// A family's model with the sizes of `like`; `own`: other keys of its config.json.
inline Outline family_outline(const Outline& like, const char* family, const char* own) {
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
  return outline_from_hugging_face(config, family);
}

// Windows of two widths; every third layer sees all tokens.
inline Outline two_windows_outline(const Outline& like) {
  Outline all = like;
  all.window = 5;
  all.block_types.resize(static_cast<size_t>(all.layers));
  for (size_t layer = 0; layer < all.block_types.size(); ++layer)
    all.block_types[layer].windowed = layer % 3 != 2;
  change_each_layer(all, [](int64_t index, const BlockType& type, Layer& layer) {
    if (type.windowed && index % 3 == 1) std::get<Attention>(layer.parts[0].mixer).window = 11;
  });
  return all;
}

// Convolutions of channels, attention, experts.
inline Outline lfm2_outline(const Outline& like) {
  return family_outline(like, "lfm2_moe",
                        R"({"num_dense_layers": 1, "num_experts": 5, "num_experts_per_tok": 2,
      "moe_intermediate_size": 14, "conv_L_cache": 5, "conv_bias": true, "head_dim": null,
      "full_attn_idxs": [2]})");
}
// The MLP beside attention, rotation of neighbours, windows.
inline Outline cohere2_outline(const Outline& like) {
  return family_outline(like, "cohere2",
                        R"({"sliding_window": 5, "sliding_window_pattern": 3, "head_dim": null})");
}
// Queries that grow with positions.
inline Outline ministral3_outline(const Outline& like) {
  return family_outline(like, "ministral3", R"({"max_position_embeddings": 64, "rope_parameters": {
      "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8, "rope_theta": 10000.0,
      "llama_4_scaling_beta": 0.4}})");
}
// Heads normed behind their rotation.
inline Outline hunyuan_outline(const Outline& like) { return family_outline(like, "hunyuan_v1_dense", "{}"); }
// Norms without weights, and a norm of embeddings.
inline Outline nanochat_outline(const Outline& like) {
  return family_outline(like, "nanochat", R"({"hidden_act": "relu2"})");
}
// Mamba-2 and attention side by side, with factors.
inline Outline falcon_h1_outline(const Outline& like) {
  return family_outline(like, "falcon_h1", R"({"mamba_d_ssm": 36, "mamba_n_heads": 12, "mamba_n_groups": 6,
      "mamba_d_state": 4, "key_multiplier": 0.5, "ssm_multipliers": [1, 2, 0.5, 1.5, 0.75],
      "attention_out_multiplier": 0.8, "mlp_multipliers": [0.7, 1.2]})");
}
// Gates in rows of their own, and norms behind experts.
inline Outline afmoe_outline(const Outline& like) {
  return family_outline(like, "afmoe", R"({"sliding_window": 5, "num_experts": 6, "num_experts_per_tok": 2,
      "moe_intermediate_size": 9, "num_shared_experts": 1})");
}

// Two widths of heads, keys that are values, experts beside the MLP, a factor for each layer.
inline Outline gemma4_outline(const Outline& like) {
  return family_outline(like, "gemma4_text", R"({"sliding_window": 5, "attention_k_eq_v": true,
      "num_global_key_value_heads": 1, "global_head_dim": 10, "hidden_size_per_layer_input": 0,
      "enable_moe_block": true, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 9})");
}
// Embeddings by layer. The last layer of each kind among the first three lends its keys and values to the
// layers behind.
inline Outline gemma4_e_outline(const Outline& like) {
  Outline all = like;
  all.layers = std::max<int64_t>(5, like.layers);
  base::Json types = base::Json::array();
  for (int64_t layer = all.layers; layer-- > 0;)
    types.push_back(layer % 2 == 0 ? "full_attention" : "sliding_attention");
  return family_outline(all, "gemma4_text",
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
inline Outline llama4_outline(const Outline& like) {
  return family_outline(like, "llama4_text", R"({"attention_chunk_size": 4, "no_rope_layer_interval": 2,
      "floor_scale": 3, "num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 9,
      "intermediate_size_mlp": 14, "interleave_moe_layer_step": 2})");
}
// Experts by SparseMixer, biases of attention and of logits.
inline Outline phimoe_outline(const Outline& like) {
  return family_outline(like, "phimoe", R"({"attention_bias": true, "lm_head_bias": true,
      "num_local_experts": 5, "num_experts_per_tok": 2, "router_jitter_noise": 0.4})");
}
// A delta rule whose states decay by channel, latent attention without rotation, experts.
inline Outline kimi_linear_outline(const Outline& like) {
  return family_outline(like, "kimi_linear", R"({"linear_num_heads": 6, "linear_head_dim": 4,
      "num_key_value_heads": null, "kv_lora_rank": 7, "qk_nope_head_dim": 6, "qk_rope_head_dim": 2,
      "v_head_dim": 5, "num_local_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 9,
      "layer_types": null, "first_k_dense_replace": 1})");
}

}  // namespace sluice::model
