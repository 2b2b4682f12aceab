"""Twenty steps of Sluice, on one rank and under strategies that change on four, beside an independent program.

That program computes in FP64, and once more in FP32: where a gradient is ill-conditioned (one step of SmolLM 3's
twenty), both programs' FP32 are some 1e-4 of its norm away, by processor more or less, so that Sluice may be as far
as transformers itself.

    python tests/parity/train_parity.py build/sluice
"""

import sys
import tempfile
from pathlib import Path

import torch

import program
import reference

STEPS = 20
SHAPE = dict(layers=4, hidden=64, heads=4, kv_heads=2, ffn_hidden=176, vocab=512, positions=256)
OPTIMIZER = dict(lr=4e-3, betas=[0.9, 0.95], eps=1e-8, weight_decay=0.1, clip=1.0, warmup_steps=5, decay="cosine",
                 min_lr=4e-4)
LENGTHS = [7, 256, 31, 2, 90, 300, 55, 128, 18, 640, 3, 77, 201, 12, 44, 160, 9, 350, 27, 65]
LAYOUTS = {"one rank": (1, ["<1,1,1>"]),
           "four ranks": (4, ["<2,1,1> + 2x<1,1,1>", "<1,2,1> + <2,1,1>", "4x<1,1,1>"])}


def settings(scratch, model_directory, strategies, optimizer):
    return {
        "model": {"hf": str(model_directory)},
        "data": {"train": [[str(scratch / "corpus"), 1.0]], "context_length": SHAPE["positions"],
                 "tokens_per_step": 1024},
        "train": {"steps": STEPS, "threads": 1, "device": "cpu", "moe_router_bias_update_rate": 0.0},
        "optimizer": optimizer,
        "parallel": {"strategies": strategies, "select": "cycle", "calibration": "analytic"},
        "memory": {"margin_gib": 0.125},
        "log": {"tensorboard": False},
    }


def configuration(scratch, model_directory, strategies, optimizer):
    return program.write_config(scratch / "run.toml", settings(scratch, model_directory, strategies, optimizer))


# What each model changes.
MODELS = {"llama": {}, "tied": {"tie_word_embeddings": True}, "qwen2": {"family": "qwen2"},
          "qwen3": {"family": "qwen3", "head_dim": 24},
          "mistral": {"family": "mistral", "sliding_window": 48},
          "phi3": {"family": "phi3", "pad_token_id": None, "sliding_window": 48},
          "gemma2": {"family": "gemma2", "sliding_window": 48, "query_pre_attn_scalar": 20, "pad_token_id": None,
                     "attn_logit_softcapping": 5.0, "final_logit_softcapping": 10.0},
          "gemma3": {"family": "gemma3_text", "sliding_window": 48, "query_pre_attn_scalar": 20, "pad_token_id": None,
                     "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"]},
          "granite": {"family": "granite", "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
                      "attention_multiplier": 0.0625, "logits_scaling": 8.0},
          "smollm3": {"family": "smollm3", "no_rope_layers": [1, 0, 1, 1], "pad_token_id": None},
          "olmo2": {"family": "olmo2", "pad_token_id": None},
          "mixtral": {"family": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2},
          "qwen2_moe": {"family": "qwen2_moe", "num_experts": 6, "num_experts_per_tok": 3, "mlp_only_layers": [0],
                        "moe_intermediate_size": 48, "shared_expert_intermediate_size": 64},
          "qwen3_moe": {"family": "qwen3_moe", "num_experts": 16, "num_experts_per_tok": 4, "norm_topk_prob": True,
                        "moe_intermediate_size": 32},
          "olmoe": {"family": "olmoe", "num_experts": 8, "num_experts_per_tok": 2, "pad_token_id": None},
          "gpt_oss": {"family": "gpt_oss", "head_dim": 32, "num_local_experts": 8, "num_experts_per_tok": 2,
                      "sliding_window": 48, "swiglu_limit": 1.0, "pad_token_id": None},
          "glm4_moe": {"family": "glm4_moe", "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
                       "moe_intermediate_size": 32, "n_shared_experts": 2, "first_k_dense_replace": 1, "use_qk_norm": True,
                       "routed_scaling_factor": 2.5, "num_mtp_layers": 0, "pad_token_id": None},
          "deepseek_v3": {"family": "deepseek_v3", "kv_heads": 4, "head_dim": 16, "q_lora_rank": 64, "kv_lora_rank": 48,
                          "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16, "n_routed_experts": 8,
                          "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2, "moe_intermediate_size": 32,
                          "n_shared_experts": 1, "first_k_dense_replace": 1, "routed_scaling_factor": 2.5, "num_mtp_layers": 0,
                          "pad_token_id": None},
          "olmo_hybrid": {"family": "olmo_hybrid", "linear_num_key_heads": 4, "linear_num_value_heads": 4,
                          "linear_key_head_dim": 16, "linear_value_head_dim": 24, "pad_token_id": None},
          "granite_hybrid": {"family": "granitemoehybrid", "pad_token_id": None, "num_local_experts": 0,
                             "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
                             "shared_intermediate_size": 128, "mamba_n_heads": 16, "mamba_n_groups": 2, "mamba_d_state": 16},
          "mamba2": {"family": "mamba2", "num_heads": 16, "head_dim": 8, "n_groups": 2, "state_size": 16, "initializer_range": 0.02},
          "gla": {"family": "gla", "kv_heads": 4, "rms_norm_eps": 0.05},
          "qwen3_5": {"family": "qwen3_5_text", "head_dim": 32, "linear_num_key_heads": 4, "linear_num_value_heads": 8,
                      "linear_key_head_dim": 16, "linear_value_head_dim": 16}}

# Where gradients are smaller, as logits are divided by 8.
CLIP = {"granite": 0.1}


def compare(comparison, sluice, scratch, model):
    documents = program.zipf_documents(LENGTHS * 2, SHAPE["vocab"], seed=2)
    program.write_corpus(scratch / "corpus", documents)
    model_directory = scratch / model
    reference.save(reference.random_model(reference.model_config(**{**SHAPE, **MODELS[model]}), seed=1), model_directory)
    optimizer = {**OPTIMIZER, "clip": CLIP.get(model, OPTIMIZER["clip"])}
    config = configuration(scratch, model_directory, LAYOUTS["one rank"][1], optimizer)
    batches = [program.batch(sluice, config, step, documents) for step in range(STEPS)]
    exact = reference.load_model(model_directory, torch.float64)
    with reference.RoutingMargin(exact) as margin:
        losses, norms = reference.train(exact, batches, optimizer)
    # A token that stands between two experts by less than float32 rounds goes to another one there.
    allowed_loss = 1e-6 if margin.least > 1e-5 else 1e-5
    _, rounded = reference.train(reference.load_model(model_directory, torch.float32), batches, optimizer)
    allowed = max(1e-4, 4 * max(abs(a / b - 1) for a, b in zip(rounded, norms, strict=True)))
    for name, (ranks, strategies) in LAYOUTS.items():
        config = configuration(scratch, model_directory, strategies, optimizer)
        lines = program.train(sluice, config, scratch / "run", ranks=ranks)
        where = f"{model}, {name}"
        comparison.equal(f"{where}: tokens", [line["tokens"] for line in lines],
                         [sum(map(len, batch)) for batch in batches])
        comparison.equal(f"{where}: strategies used", len({line["strategy"] for line in lines}), len(strategies))
        comparison.close(f"{where}: loss", [line["loss"] for line in lines], losses, allowed_loss)
        comparison.close(f"{where}: gradient norm", [line["grad_norm"] for line in lines], norms, allowed)
    comparison.equal(f"{model}: clipping took place", min(norms) < optimizer["clip"] < max(norms), True)


def main():
    comparison = program.Comparison()
    for model in MODELS:
        with tempfile.TemporaryDirectory() as scratch:
            compare(comparison, sys.argv[1], Path(scratch), model)
    comparison.finish()


if __name__ == "__main__":
    main()
