"""Writes tests/data/parity: small models with what transformers and torch.optim make of them.

    ~/.cache/sluice/parity/bin/python tests/parity/make_fixtures.py [CASE…]

A folder a case: config.json and model.safetensors, corpus.bin and corpus.idx, and expected.json: tokens, the sum
of the losses of each sequence, logits of the first one, and losses and gradient norms of training steps that each
see the whole corpus once (so they don't depend on how batches are drawn).
"""

import json
import shutil
import sys
from pathlib import Path

import torch

import program
import reference

FOLDER = Path(__file__).resolve().parent.parent / "data" / "parity"
POSITIONS = 96
LENGTHS = [4, 96, 2, 33, 57, 130, 18, 71]
STEPS = 20
DOUBT = 2e-5  # of a score; FP32 is 1e-6 off after as many steps
SHAPE = dict(layers=3, hidden=32, heads=4, ffn_hidden=56, vocab=192, positions=POSITIONS)
OPTIMIZER = dict(lr=5e-3, betas=[0.9, 0.95], eps=1e-8, weight_decay=0.1, clip=1.0, warmup_steps=4, decay="cosine",
                 min_lr=5e-4)
CALM = {"gla": 8, "olmo_hybrid": 8, "qwen3_5": 12, "qwen3_5_moe": 9, "whole_qwen3_5": 8}
HYBRID = {"head_dim": 16, "layer_types": ["linear_attention", "linear_attention", "full_attention"], "linear_num_key_heads": 2,
          "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 12}
SECTIONS = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]}
# torch leaves the row of a padding token out of the gradient of an embedding.
UNPADDED = {"pad_token_id": None}
GROWING = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 16, "beta_fast": 32.0,
           "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.3}
GEMMA4 = {"head_dim": 8, "global_head_dim": 16, "sliding_window": 24, "hidden_size_per_layer_input": 0,
          "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]}
# Embeddings by layer, and keys and values that layers share: the first layer has its own, the next two lend theirs. With a
# usual eps of norms their class's own steps in FP32 are 0.2 % from those in FP64.
GEMMA4_E = GEMMA4 | {"layers": 6, "rms_norm_eps": 0.01, "hidden_size_per_layer_input": 6, "vocab_size_per_layer_input": 192,
                     "num_kv_shared_layers": 3, "use_double_wide_mlp": True,
                     "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2}
CASES = {
    "whole_qwen3_5": {"kv_heads": 2, "family": "qwen3_5", **HYBRID},
    "whole_qwen3_5_moe": {"kv_heads": 2, "family": "qwen3_5_moe", **HYBRID, "num_experts": 4, "num_experts_per_tok": 2,
                          "moe_intermediate_size": 12, "shared_expert_intermediate_size": 20},
    "whole_qwen3_vl": {"kv_heads": 2, "family": "qwen3_vl", "head_dim": 16, "tied": True, "rope_parameters": SECTIONS},
    "whole_qwen3_vl_moe": {"kv_heads": 2, "family": "qwen3_vl_moe", "head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2,
                           "moe_intermediate_size": 12, "rope_parameters": SECTIONS},
    "whole_gemma3": {"kv_heads": 2, "family": "gemma3", "tied": True, "head_dim": 16, "sliding_window": 24,
                     "query_pre_attn_scalar": 20, "pad_token_id": None,
                     "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    "whole_mistral3": {"kv_heads": 2, "family": "mistral3", "model_type": "mistral", "sliding_window": None},
    "whole_ministral3": {"kv_heads": 2, **UNPADDED, "family": "mistral3", "model_type": "ministral3", "rope_parameters": GROWING},
    "whole_internvl": {"kv_heads": 2, **UNPADDED, "family": "internvl", "model_type": "qwen2"},
    "gqa": {"kv_heads": 2},
    "tied_llama3": {"kv_heads": 4, "tie_word_embeddings": True,
                    "rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0,
                                        "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                        "original_max_position_embeddings": 32}},
    "qwen2": {"kv_heads": 2, "family": "qwen2"},
    "qwen3": {"kv_heads": 2, "family": "qwen3", "head_dim": 16},
    "phi3": {"kv_heads": 2, "family": "phi3", "pad_token_id": None},
    "granite": {"kv_heads": 2, "family": "granite", "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
                "attention_multiplier": 0.0625, "logits_scaling": 8.0},
    "smollm3": {"kv_heads": 2, "family": "smollm3", "no_rope_layers": [1, 0, 1], "pad_token_id": None},
    "olmo2": {"kv_heads": 2, "family": "olmo2", "pad_token_id": None},
    "mistral": {"kv_heads": 2, "family": "mistral", "sliding_window": 24},
    "gemma2": {"kv_heads": 2, "family": "gemma2", "sliding_window": 24, "query_pre_attn_scalar": 20, "pad_token_id": None,
               "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0},
    "gemma3": {"kv_heads": 2, "family": "gemma3_text", "sliding_window": 24, "query_pre_attn_scalar": 20, "pad_token_id": None,
               "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    "mixtral": {"kv_heads": 2, "family": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": {"kv_heads": 2, "family": "qwen2_moe", "num_experts": 6, "num_experts_per_tok": 3, "mlp_only_layers": [1],
                  "moe_intermediate_size": 20, "shared_expert_intermediate_size": 28},
    "qwen3_moe": {"kv_heads": 2, "family": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "norm_topk_prob": True,
                  "moe_intermediate_size": 12, "head_dim": 16, "mlp_only_layers": [1]},
    "olmoe": {"kv_heads": 2, "family": "olmoe", "num_experts": 4, "num_experts_per_tok": 2, "pad_token_id": None},
    "gpt_oss": {"kv_heads": 2, "family": "gpt_oss", "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2,
                "sliding_window": 24, "swiglu_limit": 2.0, "pad_token_id": None,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    "glm4_moe": {"kv_heads": 2, "family": "glm4_moe", "head_dim": 16, "n_routed_experts": 8, "num_experts_per_tok": 2,
                 "moe_intermediate_size": 12, "n_shared_experts": 2, "n_group": 4, "topk_group": 2, "use_qk_norm": True,
                 "attention_bias": True, "routed_scaling_factor": 2.5, "first_k_dense_replace": 1, "num_mtp_layers": 0,
                 "pad_token_id": None},
    "deepseek_v3": {"kv_heads": 4, "family": "deepseek_v3", "head_dim": 8, "q_lora_rank": 24, "kv_lora_rank": 16,
                    "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10, "n_routed_experts": 8,
                    "num_experts_per_tok": 2, "moe_intermediate_size": 12, "n_shared_experts": 1, "n_group": 4, "topk_group": 2,
                    "routed_scaling_factor": 2.5, "first_k_dense_replace": 1, "num_mtp_layers": 0, "pad_token_id": None,
                    "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 32.0,
                                        "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 0.7,
                                        "original_max_position_embeddings": 32}},
    "olmo_hybrid": {"kv_heads": 2, "family": "olmo_hybrid", "pad_token_id": None,
                    "rope_parameters": {"rope_type": "default", "rope_theta": None},
                    "layer_types": ["linear_attention", "full_attention", "linear_attention"], "linear_num_key_heads": 2,
                    "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 12},
    "qwen3_5": {"kv_heads": 2, "family": "qwen3_5_text", "head_dim": 16, "tie_word_embeddings": True,
                "layer_types": ["linear_attention", "linear_attention", "full_attention"], "linear_num_key_heads": 2,
                "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 12},
    "qwen3_5_moe": {"kv_heads": 2, "family": "qwen3_5_moe_text", "head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2,
                    "moe_intermediate_size": 12, "shared_expert_intermediate_size": 20, "linear_num_key_heads": 2,
                    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
                    "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8},
    "granite_hybrid": {"kv_heads": 2, "family": "granitemoehybrid", "pad_token_id": None, "num_local_experts": 0,
                       "layer_types": ["linear_attention", "full_attention", "linear_attention"],
                       "shared_intermediate_size": 56, "mamba_n_heads": 8, "mamba_n_groups": 2, "mamba_d_state": 6,
                       "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.0625,
                       "logits_scaling": 8.0, "tie_word_embeddings": True},
    "mamba2": {"kv_heads": 2, "family": "mamba2", "num_heads": 8, "head_dim": 8, "n_groups": 2, "state_size": 6,
               "initializer_range": 0.02, "tie_word_embeddings": True},
    "gla": {"kv_heads": 4, "family": "gla", "expand_k": 0.75, "expand_v": 1.25, "rms_norm_eps": 0.05},
    "qwen3_next": {"kv_heads": 2, "family": "qwen3_next", "head_dim": 16, "num_experts": 6, "num_experts_per_tok": 2,
                   "moe_intermediate_size": 12, "shared_expert_intermediate_size": 20, "mlp_only_layers": [1],
                   "layer_types": ["linear_attention", "linear_attention", "full_attention"], "linear_num_key_heads": 2,
                   "linear_num_value_heads": 6, "linear_key_head_dim": 8, "linear_value_head_dim": 12},
    "olmo3": {"kv_heads": 2, "family": "olmo3", "sliding_window": 24, "pad_token_id": None,
              "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
              "rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 8.0,
                                                     "original_max_position_embeddings": 32},
                                  "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0}}},
    "ministral": {"kv_heads": 2, "family": "ministral", "sliding_window": 24, "head_dim": 12,
                  "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    "seed_oss": {"kv_heads": 2, "family": "seed_oss", "attention_dropout": 0.0, "residual_dropout": 0.0, "head_dim": 12,
                 "attention_out_bias": True, "pad_token_id": None},
    "exaone4": {"kv_heads": 2, "family": "exaone4", "sliding_window": 24, "tie_word_embeddings": True,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    "internlm3": {"kv_heads": 2, "family": "internlm3", "head_dim": 12, "pad_token_id": None},
    "granite_swa": {"kv_heads": 2, "family": "granite_swa", "sliding_window": 24, "pad_token_id": None,
                    "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
                    "layer_rope_theta": [0, 20000.0, 20000.0], "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
                    "attention_multiplier": 0.0625, "logits_scaling": 8.0},
    "glm4_moe_lite": {"kv_heads": 4, "family": "glm4_moe_lite", "head_dim": 8, "q_lora_rank": 24, "kv_lora_rank": 16,
                      "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10, "n_routed_experts": 6,
                      "num_experts_per_tok": 2, "moe_intermediate_size": 12, "pad_token_id": None,
                      "mlp_layer_types": ["dense", "sparse", "dense"]},
    "deepseek_v2": {"kv_heads": 4, "family": "deepseek_v2", "head_dim": 8, "q_lora_rank": 24, "kv_lora_rank": 16,
                    "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10, "n_routed_experts": 6,
                    "num_experts_per_tok": 2, "moe_intermediate_size": 12, "routed_scaling_factor": 1.5,
                    "first_k_dense_replace": 1, "pad_token_id": None},
    "minimax_m2": {"kv_heads": 2, "family": "minimax_m2", "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2,
                   "intermediate_size": 16, "rotary_dim": 8, "pad_token_id": None},
    "dots1": {"kv_heads": 2, "family": "dots1", "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
              "n_shared_experts": 2, "first_k_dense_replace": 1, "sliding_window": 24, "norm_topk_prob": True,
              "layer_types": ["full_attention", "sliding_attention", "full_attention"]},
    "solar_open": {"kv_heads": 2, "family": "solar_open", "head_dim": 16, "n_routed_experts": 6, "num_experts_per_tok": 2,
                   "moe_intermediate_size": 12, "attention_bias": True, "pad_token_id": None},
    "mellum": {"kv_heads": 2, "family": "mellum", "head_dim": 12, "num_experts": 4, "num_experts_per_tok": 2,
               "moe_intermediate_size": 12, "sliding_window": 24, "mlp_layer_types": ["sparse", "dense", "sparse"],
               "layer_types": ["full_attention", "sliding_attention", "sliding_attention"]},
    "arcee": {"kv_heads": 2, "family": "arcee", "head_dim": 12, "attention_bias": True, "mlp_bias": True},
    "starcoder2": {"kv_heads": 2, "family": "starcoder2", "sliding_window": 24, "bos_token_id": None, "eos_token_id": None},
    "stablelm": {"kv_heads": 2, "family": "stablelm", "use_qkv_bias": True},
    "nemotron": {"kv_heads": 2, "family": "nemotron", "head_dim": 12, "mlp_bias": True},
    "nemotron_h": {"kv_heads": 2, "family": "nemotron_h", "head_dim": 12, "mamba_num_heads": 8, "mamba_head_dim": 12, "n_groups": 2,
                   "ssm_state_size": 6, "mlp_bias": True, **reference.FREE_STEPS,
                   "layers_block_type": ["linear_attention", "mlp", "full_attention", "mlp"]},
    "hy_v3": {"kv_heads": 2, "family": "hy_v3", "head_dim": 12, "num_experts": 4, "num_experts_per_tok": 2, "pad_token_id": None,
              "moe_intermediate_size": 12, "num_shared_experts": 2, "tie_word_embeddings": True},
    "granitemoe": {"kv_heads": 2, "family": "granitemoe", "num_local_experts": 4, "num_experts_per_tok": 2,
                   "intermediate_size": 16, "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "pad_token_id": None,
                   "attention_multiplier": 0.0625, "logits_scaling": 8.0, "tie_word_embeddings": True},
    "granite_experts": {"kv_heads": 2, "family": "granitemoehybrid", "pad_token_id": None, "num_local_experts": 4,
                        "num_experts_per_tok": 2, "intermediate_size": 16, "shared_intermediate_size": 24,
                        "layer_types": ["linear_attention", "full_attention", "linear_attention"], "mamba_n_heads": 8,
                        "mamba_n_groups": 2, "mamba_d_state": 6, "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
                        "attention_multiplier": 0.0625, "logits_scaling": 8.0},
    "exaone_moe": {"kv_heads": 2, "family": "exaone_moe", "num_experts": 6, "num_experts_per_tok": 2, "pad_token_id": None,
                   "moe_intermediate_size": 12, "sliding_window": 24, "n_group": 2, "topk_group": 1,
                   "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]},
    "ministral3": {"kv_heads": 2, **UNPADDED, "family": "ministral3", "head_dim": 12, "rope_parameters": GROWING},
    "mistral4": {"kv_heads": 4, **UNPADDED, "family": "mistral4", "head_dim": 16, "q_lora_rank": 24, "kv_lora_rank": 16,
                 "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 10, "n_routed_experts": 8, "num_experts_per_tok": 2,
                 "moe_intermediate_size": 12, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1,
                 "rope_parameters": GROWING | {"partial_rotary_factor": 0.5}},
    "ernie4_5": {"kv_heads": 2, **UNPADDED, "family": "ernie4_5", "head_dim": 12, "use_bias": True},
    "ernie4_5_moe": {"kv_heads": 2, **UNPADDED, "family": "ernie4_5_moe", "moe_num_experts": 6, "moe_k": 2, "moe_intermediate_size": 12,
                     "moe_layer_end_index": 1, "tie_word_embeddings": False},
    "glm4": {"kv_heads": 2, "family": "glm4", "head_dim": 16, "pad_token_id": None},
    "cohere2": {"kv_heads": 2, **UNPADDED, "family": "cohere2", "sliding_window": 24, "logit_scale": 0.25, "attention_bias": True,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "bos_token_id": None,
                "eos_token_id": None},
    "hunyuan": {"kv_heads": 2, **UNPADDED, "family": "hunyuan_v1_dense", "head_dim": 12, "attention_bias": True,
                "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 50.0, "factor": 1.0}},
    "hunyuan_moe": {"kv_heads": 2, **UNPADDED, "family": "hunyuan_v1_moe", "num_experts": 4, "moe_topk": 2},
    "nanochat": {"kv_heads": 2, **UNPADDED, "family": "nanochat", "head_dim": 8},
    "bamba": {"kv_heads": 2, **UNPADDED, "family": "bamba", "attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_n_groups": 2,
              "mamba_d_state": 6},
    "falcon_h1": {"kv_heads": 2, **UNPADDED, "family": "falcon_h1", "mamba_d_ssm": 48, "mamba_n_heads": 8, "mamba_n_groups": 2,
                  "mamba_d_state": 6, "mamba_d_head": 6, "key_multiplier": 0.7, "attention_in_multiplier": 1.5,
                  "attention_out_multiplier": 0.8, "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.6,
                  "ssm_multipliers": [0.9, 1.1, 0.8, 1.2, 0.7], "mlp_multipliers": [0.75, 1.3], "embedding_multiplier": 3.0,
                  "lm_head_multiplier": 0.5},
    "afmoe": {"kv_heads": 2, "family": "afmoe", "head_dim": 12, "num_experts": 4, "num_experts_per_tok": 2,
              "moe_intermediate_size": 12, "sliding_window": 24, "mup_enabled": True, "route_scale": 1.5,
              "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    "lfm2": {"kv_heads": 2, **UNPADDED, "family": "lfm2", "full_attn_idxs": [1], "block_multiple_of": 8, "conv_bias": True},
    "lfm2_moe": {"kv_heads": 2, **UNPADDED, "family": "lfm2_moe", "layer_types": ["conv", "full_attention", "conv"], "num_experts": 4,
                 "num_experts_per_tok": 2, "moe_intermediate_size": 12, "num_dense_layers": 1},
    "nemotron_experts": {"kv_heads": 2, "family": "nemotron_h", "head_dim": 12, "mamba_num_heads": 8, "mamba_head_dim": 12,
                         "n_groups": 2, "ssm_state_size": 6, **reference.FREE_STEPS, "n_routed_experts": 4,
                         "num_experts_per_tok": 2, "moe_intermediate_size": 12, "moe_shared_expert_intermediate_size": 20,
                         "layers_block_type": ["linear_attention", "moe", "full_attention", "moe"]},
    "gemma4": {"kv_heads": 2, **UNPADDED, "family": "gemma4_text", **GEMMA4},
    "gemma4_experts": {"kv_heads": 2, **UNPADDED, "family": "gemma4_text", **GEMMA4, "attention_k_eq_v": True,
                       "num_global_key_value_heads": 1, "enable_moe_block": True, "num_experts": 6, "top_k_experts": 2,
                       "moe_intermediate_size": 12, "final_logit_softcapping": 3.0},
    "gemma4_e": {"kv_heads": 2, **UNPADDED, "family": "gemma4_text", **GEMMA4_E, "tie_word_embeddings": True},
    # Its class wants a padding token: one that no document has.
    "whole_gemma4_e": {"kv_heads": 2, "pad_token_id": 29, "family": "gemma4", "tied": True, **GEMMA4_E},
    "whole_gemma4": {"kv_heads": 2, "pad_token_id": 29, "family": "gemma4", "tied": True, **GEMMA4, "attention_k_eq_v": True,
                     "num_global_key_value_heads": 1},
    "llama4": {"kv_heads": 2, **UNPADDED, "family": "llama4_text", "layers": 4, "head_dim": 8, "intermediate_size": 20,
               "intermediate_size_mlp": 56, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_layers": [1, 2, 3],
               "attention_chunk_size": 24, "floor_scale": 8, "attn_scale": 0.3, "no_rope_layers": [1, 0, 1, 0]},
    "whole_llama4": {"kv_heads": 2, **UNPADDED, "family": "llama4", "head_dim": 8, "intermediate_size": 20,
                     "intermediate_size_mlp": 56, "num_local_experts": 4, "moe_layers": [1],
                     "attention_chunk_size": 24, "floor_scale": 8, "no_rope_layers": [1, 0, 1]},
    "phimoe": {"kv_heads": 2, **UNPADDED, "family": "phimoe", "attention_bias": True, "num_local_experts": 4,
               "router_jitter_noise": 0.3, "lm_head_bias": True},
    "kimi_linear": {"kv_heads": 4, **UNPADDED, "family": "kimi_linear", "head_dim": 8, "linear_num_heads": 4, "linear_head_dim": 8,
                    "kv_lora_rank": 16, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10, "num_local_experts": 8,
                    "num_experts_per_tok": 2, "moe_intermediate_size": 12, "n_group": 2, "topk_group": 1,
                    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
                    "mlp_layer_types": ["dense", "sparse", "sparse"]},
    "lfm3": {"kv_heads": 2, **UNPADDED, "family": "lfm3", "head_dim": 12, "sliding_window": 24,
             "layer_types": ["conv", "sliding_attention", "full_attention"]},
    "apertus": {"kv_heads": 2, **UNPADDED, "family": "apertus", "attention_bias": True},
}


def rounded(values):
    """Eight digits: ten times what the comparison sees."""
    return [float(f"{value:.8g}") for value in values]


def make(name, changes):
    """Of seeds the first whose tokens choose their experts beyond doubt, whatever a program rounds; of those in CALM the first
    whose steps don't make much of rounding."""
    for seed in range(CALM.get(name, 7), 100):
        if make_with_seed(FOLDER / name, changes, seed) > DOUBT:
            return
    raise SystemExit(f"{name}: no seed with a routing margin above {DOUBT}")


def make_with_seed(folder, changes, seed):
    shutil.rmtree(folder, ignore_errors=True)
    reference.save(reference.random_model(reference.model_config(**{**SHAPE, **changes}), seed=seed, scale=4), folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    documents = program.zipf_documents(LENGTHS, SHAPE["vocab"], seed=5)
    program.write_corpus(folder / "corpus", documents)

    model = reference.load_model(folder).eval()
    sequences = [document[:POSITIONS] for document in documents]
    with reference.RoutingMargin(model) as margin:
        with torch.no_grad():
            loss_sums = [reference.token_losses(model, tokens).sum().item() for tokens in sequences]
            logits = model(input_ids=torch.tensor([sequences[0]])).logits[0]
        losses, norms = reference.train(model, [sequences] * STEPS, OPTIMIZER)
    expected = {"context_length": POSITIONS, "optimizer": OPTIMIZER, "sequences": sequences,
                "loss_sums": rounded(loss_sums), "logits": [rounded(row.tolist()) for row in logits],
                "losses": rounded(losses), "grad_norms": rounded(norms)}
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in expected.items()]
    (folder / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return margin.least


if __name__ == "__main__":
    for case in sys.argv[1:] or CASES:
        make(case, CASES[case])
