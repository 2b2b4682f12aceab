"""Models of transformers go through import, eval and export: same tensors, same logits, same loss.

    python tests/parity/model_parity.py build/sluice [CASE…]
"""

import json
import sys
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import program
import reference
from make_fixtures import GROWING

POSITIONS = 128
NEW_TOKENS = 24
LENGTHS = [6, 17, 64, 300, 5, 128, 41, 1, 33]  # one over the context, one without targets
SHAPE = dict(layers=2, hidden=64, heads=4, kv_heads=2, ffn_hidden=112, vocab=320, positions=POSITIONS)

# What each case changes.
CASES = {
    "gqa": {},
    "mha": {"kv_heads": 4},
    "mqa": {"kv_heads": 1, "rms_norm_eps": 1e-6},
    "tied": {"tie_word_embeddings": True},
    "head_dim": {"head_dim": 24},
    "rope_theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
    "linear": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    "llama3": {"rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0,
                                   "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                   "original_max_position_embeddings": 32}},
    "yarn": {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                                 "original_max_position_embeddings": 32}},
    "qwen2": {"family": "qwen2"},
    "qwen2_tied": {"family": "qwen2", "tie_word_embeddings": True, "kv_heads": 1},
    "qwen3": {"family": "qwen3", "head_dim": 24},
    "mistral": {"family": "mistral", "sliding_window": 24},
    "phi3": {"family": "phi3", "pad_token_id": None, "sliding_window": 40},
    # One of its frequencies for contexts up to the original one, another beyond it: every sequence beyond.
    "phi3_longrope": {"family": "phi3", "pad_token_id": None, "original_max_position_embeddings": 4,
                      "rope_parameters": {"rope_type": "longrope", "rope_theta": 10000.0,
                                          "short_factor": [1.0] * 8,
                                          "long_factor": [1.0, 1.1, 1.3, 1.7, 2.0, 3.0, 5.0, 9.0]}},
    "qwen3_window": {"family": "qwen3", "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1},
    "gemma2": {"family": "gemma2", "layers": 4, "head_dim": 24, "query_pre_attn_scalar": 20, "sliding_window": 24,
               "attn_logit_softcapping": 3.0, "final_logit_softcapping": 5.0, "pad_token_id": None},
    "gemma3": {"family": "gemma3_text", "layers": 4, "head_dim": 24, "query_pre_attn_scalar": 20,
               "sliding_window": 24, "pad_token_id": None,
               "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"],
               "rope_parameters": {"full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
                                   "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
    # transformers' Gemma 3 reads a cap of scores and computes none.
    "gemma3_capped": {"family": "gemma3_text", "layers": 6, "sliding_window_pattern": 3, "sliding_window": 16,
                      "final_logit_softcapping": 5.0, "pad_token_id": None},
    "granite": {"family": "granite", "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
                "attention_multiplier": 0.0625, "logits_scaling": 8.0},
    "smollm3": {"family": "smollm3", "layers": 4, "no_rope_layers": [1, 0, 1, 1], "pad_token_id": None,
                "tie_word_embeddings": True},
    "olmo2": {"family": "olmo2", "pad_token_id": None},
    "mixtral": {"family": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 24},
    "qwen2_moe": {"family": "qwen2_moe", "layers": 3, "num_experts": 6, "num_experts_per_tok": 3, "decoder_sparse_step": 2,
                  "moe_intermediate_size": 40, "shared_expert_intermediate_size": 72},
    "qwen3_moe": {"family": "qwen3_moe", "num_experts": 32, "num_experts_per_tok": 8, "norm_topk_prob": True,
                  "moe_intermediate_size": 24, "head_dim": 24, "tie_word_embeddings": True},
    "olmoe": {"family": "olmoe", "num_experts": 16, "num_experts_per_tok": 4, "pad_token_id": None},
    "gpt_oss": {"family": "gpt_oss", "layers": 4, "head_dim": 24, "num_local_experts": 8, "num_experts_per_tok": 2,
                "sliding_window": 24, "swiglu_limit": 0.5, "pad_token_id": None},
    "glm4_moe": {"family": "glm4_moe", "layers": 3, "n_routed_experts": 16, "num_experts_per_tok": 4, "n_group": 4,
                 "topk_group": 2, "moe_intermediate_size": 24, "n_shared_experts": 1, "first_k_dense_replace": 1,
                 "routed_scaling_factor": 1.5, "num_mtp_layers": 0, "pad_token_id": None},
    "deepseek_v3": {"family": "deepseek_v3", "kv_heads": 4, "head_dim": 16, "q_lora_rank": 40, "kv_lora_rank": 32,
                    "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 24, "n_routed_experts": 16,
                    "num_experts_per_tok": 4, "n_group": 4, "topk_group": 2, "moe_intermediate_size": 24,
                    "n_shared_experts": 1, "first_k_dense_replace": 1, "routed_scaling_factor": 2.5, "num_mtp_layers": 0,
                    "pad_token_id": None},
    "olmo_hybrid": {"family": "olmo_hybrid", "layers": 4, "pad_token_id": None, "linear_num_key_heads": 3,
                    "linear_num_value_heads": 6, "linear_key_head_dim": 8, "linear_value_head_dim": 20,
                    "linear_allow_neg_eigval": False},
    "qwen3_5": {"family": "qwen3_5_text", "layers": 5, "head_dim": 24, "linear_num_key_heads": 2, "linear_num_value_heads": 6,
                "linear_key_head_dim": 16, "linear_value_head_dim": 8,
                "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5}},
    "qwen3_5_moe": {"family": "qwen3_5_moe_text", "layers": 4, "head_dim": 24, "num_experts": 16, "num_experts_per_tok": 4,
                    "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40, "linear_num_key_heads": 2,
                    "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 8},
    "granite_hybrid": {"family": "granitemoehybrid", "layers": 4, "pad_token_id": None, "num_local_experts": 0,
                       "shared_intermediate_size": 96, "mamba_n_heads": 16, "mamba_n_groups": 1, "mamba_d_state": 12,
                       "mamba_conv_bias": False, "position_embedding_type": "rope", "residual_multiplier": 0.5,
                       "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"]},
    "qwen3_next": {"family": "qwen3_next", "layers": 4, "head_dim": 24, "num_experts": 8, "num_experts_per_tok": 2,
                   "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40, "decoder_sparse_step": 2,
                   "linear_num_key_heads": 3, "linear_num_value_heads": 6, "linear_key_head_dim": 16,
                   "linear_value_head_dim": 8},
    "mamba2": {"family": "mamba2", "layers": 3, "num_heads": 16, "head_dim": 8, "n_groups": 1, "state_size": 12,
               "use_conv_bias": False, "initializer_range": 0.02},
    "gla": {"family": "gla", "layers": 3, "expand_k": 0.25, "expand_v": 2.0, "ffn_hidden": None, "tie_word_embeddings": True},
    "olmo3": {"family": "olmo3", "layers": 4, "sliding_window": 24, "pad_token_id": None,
              "rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 4.0,
                                                     "original_max_position_embeddings": 32},
                                  "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0}}},
    "ministral": {"family": "ministral", "head_dim": 24, "sliding_window": 24, "pad_token_id": None,
                  "layer_types": ["full_attention", "sliding_attention"], "tie_word_embeddings": True},
    "seed_oss": {"family": "seed_oss", "attention_dropout": 0.0, "residual_dropout": 0.0, "pad_token_id": None},
    "exaone4": {"family": "exaone4", "layers": 5, "sliding_window": 24, "pad_token_id": None},
    "exaone4_full": {"family": "exaone4", "sliding_window": None, "layer_types": ["full_attention"] * 2, "pad_token_id": None},
    "internlm3": {"family": "internlm3", "head_dim": 24, "pad_token_id": None},
    "arcee": {"family": "arcee"},
    "starcoder2": {"family": "starcoder2", "use_bias": False, "tie_word_embeddings": False},
    "stablelm": {"family": "stablelm", "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5}},
    "nemotron": {"family": "nemotron", "head_dim": 24, "attention_bias": True},
    "nemotron_h": {"family": "nemotron_h", "head_dim": 24, "mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 1,
                   "ssm_state_size": 12, "use_conv_bias": False, **reference.FREE_STEPS,
                   "layers_block_type": ["mlp", "linear_attention", "linear_attention", "full_attention"]},
    "granite_swa": {"family": "granite_swa", "layers": 5, "sliding_window": 24, "attention_multiplier": 0.0625,
                    "logits_scaling": 8.0, "residual_multiplier": 0.5, "pad_token_id": None},
    "granitemoe": {"family": "granitemoe", "num_local_experts": 16, "num_experts_per_tok": 4, "attention_multiplier": 0.0625,
                   "logits_scaling": 8.0, "residual_multiplier": 0.5, "pad_token_id": None},
    "granitemoe_swa": {"family": "granitemoe_swa", "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 24,
                       "shared_intermediate_size": 40, "attention_multiplier": 0.0625, "logits_scaling": 8.0,
                       "residual_multiplier": 0.5, "pad_token_id": None},
    "granite_experts": {"family": "granitemoehybrid", "layers": 3, "pad_token_id": None, "num_local_experts": 8,
                        "num_experts_per_tok": 2, "shared_intermediate_size": 40, "mamba_n_heads": 16, "mamba_d_state": 12,
                        "residual_multiplier": 0.5, "layer_types": ["linear_attention", "full_attention", "linear_attention"]},
    "glm4_moe_lite": {"family": "glm4_moe_lite", "kv_heads": 4, "head_dim": 16, "q_lora_rank": 40, "kv_lora_rank": 32,
                      "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 24, "n_routed_experts": 16,
                      "num_experts_per_tok": 4, "moe_intermediate_size": 24, "pad_token_id": None},
    "deepseek_v2": {"family": "deepseek_v2", "kv_heads": 4, "head_dim": 16, "q_lora_rank": 40, "kv_lora_rank": 32,
                    "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 24, "n_routed_experts": 16,
                    "num_experts_per_tok": 4, "moe_intermediate_size": 24, "pad_token_id": None},
    "minimax_m2": {"family": "minimax_m2", "head_dim": 24, "num_local_experts": 16, "num_experts_per_tok": 4,
                   "partial_rotary_factor": 0.5, "pad_token_id": None},
    "dots1": {"family": "dots1", "n_routed_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24,
              "n_shared_experts": 1, "sliding_window": 24, "max_window_layers": 1},
    # Half of a head of 42 dimensions turns: an odd number.
    "glm4_moe_odd": {"family": "glm4_moe", "head_dim": 42, "n_routed_experts": 8, "num_experts_per_tok": 2,
                     "moe_intermediate_size": 24, "num_mtp_layers": 0, "pad_token_id": None},
    "solar_open": {"family": "solar_open", "head_dim": 24, "n_routed_experts": 16, "num_experts_per_tok": 4,
                   "moe_intermediate_size": 24, "pad_token_id": None},
    "mellum": {"family": "mellum", "head_dim": 24, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
               "sliding_window": 24, "layer_types": ["sliding_attention", "full_attention"], "pad_token_id": None},
    "exaone_moe": {"family": "exaone_moe", "layers": 4, "num_experts": 16, "num_experts_per_tok": 4, "pad_token_id": None,
                   "moe_intermediate_size": 24, "sliding_window": 24},
    "ministral3": {"family": "ministral3", "head_dim": 24, "rope_parameters": GROWING | {"original_max_position_embeddings": 32}},
    "mistral4": {"family": "mistral4", "kv_heads": 4, "head_dim": 32, "q_lora_rank": 40, "kv_lora_rank": 32, "qk_nope_head_dim": 16,
                 "qk_rope_head_dim": 16, "v_head_dim": 24, "n_routed_experts": 16, "num_experts_per_tok": 4,
                 "moe_intermediate_size": 24, "rope_parameters": GROWING | {"partial_rotary_factor": 0.5}},
    "ernie4_5": {"family": "ernie4_5", "head_dim": 24},
    "ernie4_5_moe": {"family": "ernie4_5_moe", "layers": 3, "moe_num_experts": 16, "moe_k": 4, "moe_intermediate_size": 24,
                     "moe_layer_interval": 2, "moe_num_shared_experts": 1},
    "glm4": {"family": "glm4", "head_dim": 24, "attention_bias": False, "pad_token_id": None},
    "cohere2": {"family": "cohere2", "layers": 4, "sliding_window": 24, "bos_token_id": None, "eos_token_id": None},
    "hunyuan": {"family": "hunyuan_v1_dense", "head_dim": 24},
    "hunyuan_moe": {"family": "hunyuan_v1_moe", "num_experts": 8, "moe_topk": 2,
                    "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 1000.0, "factor": 1.0}},
    "nanochat": {"family": "nanochat", "head_dim": 16},
    "bamba": {"family": "bamba", "layers": 3, "attn_layer_indices": [2], "mamba_n_heads": 16, "mamba_n_groups": 1,
              "mamba_d_state": 12, "mamba_conv_bias": False},
    "falcon_h1": {"family": "falcon_h1", "mamba_d_ssm": 96, "mamba_n_heads": 12, "mamba_d_head": 8, "mamba_n_groups": 1,
                  "mamba_d_state": 12, "key_multiplier": 0.5, "ssm_multipliers": [0.5, 1.0, 2.0, 1.5, 0.75]},
    "afmoe": {"family": "afmoe", "layers": 4, "head_dim": 24, "num_experts": 8, "num_experts_per_tok": 2,
              "moe_intermediate_size": 24, "sliding_window": 24, "num_shared_experts": 1},
    "lfm2": {"family": "lfm2", "layers": 3, "layer_types": ["conv", "conv", "full_attention"], "conv_L_cache": 5,
             "block_auto_adjust_ff_dim": False},
    "lfm2_moe": {"family": "lfm2_moe", "layers": 3, "layer_types": ["full_attention", "conv", "conv"], "num_experts": 8,
                 "num_experts_per_tok": 2, "moe_intermediate_size": 24, "num_dense_layers": 1, "use_expert_bias": False},
    "nemotron_experts": {"family": "nemotron_h", "head_dim": 24, "mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 1,
                         "ssm_state_size": 12, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                         "moe_shared_expert_intermediate_size": 40, **reference.FREE_STEPS,
                         "layers_block_type": ["moe", "linear_attention", "full_attention", "mlp"]},
    "sharded": {"tie_word_embeddings": True},
    "bfloat16": {},
}


def tensors(folder):
    """Every weight of a folder, by name, whatever its files."""
    result = {}
    for file in sorted(Path(folder).glob("*.safetensors")):
        result.update(load_file(file))
    return result


# Matrices times so much, 8 for others: with that the reference's own FP32 is as far from its FP64 as is allowed here, or
# sigmoids of scores are all one.
SCALES = {"glm4_moe": 2, "glm4_moe_lite": 2, "minimax_m2": 2, "dots1": 2, "glm4_moe_odd": 2, "solar_open": 2, "exaone_moe": 2,
          "deepseek_v2": 2, "deepseek_v3": 2, "mistral4": 2, "ernie4_5_moe": 4, "afmoe": 2, "lfm2_moe": 2,
          "nemotron_experts": 2, "olmo_hybrid": 4, "qwen3_5": 2, "qwen3_5_moe": 4, "qwen3_next": 4}


def make_model(folder, name):
    model = reference.random_model(reference.model_config(**{**SHAPE, **CASES[name]}), seed=len(name),
                                   scale=SCALES.get(name, 8))
    if name == "bfloat16":
        model = model.to(torch.bfloat16)
    # A shard for every few tensors.
    reference.save(model, folder, max_shard_size="100KB" if name == "sharded" else "5GB")
    sharded = (folder / "model.safetensors.index.json").exists()
    assert sharded == (name == "sharded"), f"{name}: {'more than' if sharded else 'only'} one file"


def compare_tensors(comparison, name, ours, theirs):
    comparison.equal(f"{name}: tensor names", sorted(ours), sorted(theirs))
    for key in ours.keys() & theirs.keys():
        same = ours[key].dtype == theirs[key].dtype and torch.equal(ours[key], theirs[key])
        comparison.equal(f"{name}: {key} is bitwise equal", same, True)


def logits_of(model, tokens):
    with torch.no_grad():
        return model(input_ids=torch.tensor([tokens])).logits[0].double()


def distance(ours, theirs):
    """Largest difference, relative to the largest logit of the sequence."""
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


def compare_logits(comparison, name, path, model, sequences):
    with safe_open(path, "pt") as file:
        found = [sequence["tokens"] for sequence in json.loads(file.metadata()["sequences"])]
        comparison.equal(f"{name}: tokens", found, sequences)
        distances = [distance(file.get_tensor(f"logits.{index}").double(), logits_of(model, tokens))
                     for index, tokens in enumerate(sequences)]
    comparison.within(f"{name}: logits", distances, 1e-5)


def require_rope_to_matter(name, model, tokens):
    """The same weights with plain rotary positions give other logits, so that the comparison sees them."""
    plain = AutoModelForCausalLM.from_config(reference.model_config(**SHAPE)).eval()
    plain.load_state_dict(model.state_dict())
    moved = distance(logits_of(plain, tokens), logits_of(model, tokens))
    assert moved > 1e-3, f"{name}: rotary positions move logits by {moved:.1e} only"


def compare_losses(comparison, name, result, losses_path, model, sequences):
    with torch.no_grad():
        sums = [reference.token_losses(model, tokens).sum().item() for tokens in sequences]
    targets = sum(len(tokens) - 1 for tokens in sequences)
    comparison.equal(f"{name}: targets", result["targets"], targets)
    comparison.close(f"{name}: mean loss", result["loss"], sum(sums) / targets, 1e-5)
    lines = [json.loads(line) for line in losses_path.read_text().splitlines()]
    comparison.close(f"{name}: loss of each sequence", [line["loss_sum"] for line in lines], sums, 1e-5)


def compare(comparison, sluice, scratch, name):
    original = scratch / name
    make_model(original, name)
    documents = program.zipf_documents(LENGTHS, SHAPE["vocab"], seed=3)
    program.write_corpus(scratch / "corpus", documents)
    program.run(sluice, "import", original, "--out", scratch / "imported")
    exported = scratch / "exported"
    type_of_export = "bfloat16" if name == "bfloat16" else "float32"
    program.run(sluice, "export", scratch / "imported" / "step-0", "--out", exported, "--dtype", type_of_export,
                "--max-positions", POSITIONS)
    compare_tensors(comparison, name, tensors(exported), tensors(original))

    # transformers on what Sluice wrote; Sluice on what transformers wrote, and on the checkpoint.
    sequences = [document[:POSITIONS] for document in documents if len(document) >= 2]
    model = reference.load_model(exported).eval()
    if "rope_parameters" in CASES[name] and "family" not in CASES[name]:
        require_rope_to_matter(name, model, max(sequences, key=len))
    for kind, source in {"folder": original, "checkpoint": scratch / "imported" / "step-0"}.items():
        where = f"{name}, {kind}"
        result = json.loads(program.run(
            sluice, "eval", "--model", source, "--corpus", scratch / "corpus", "--context-length", POSITIONS,
            "--threads", 1, "--losses", scratch / "losses.jsonl", "--logits", scratch / "logits.safetensors",
            "--logits-sequences", len(sequences), "--json"))
        compare_losses(comparison, where, result, scratch / "losses.jsonl", model, sequences)
        compare_logits(comparison, where, scratch / "logits.safetensors", model, sequences)
    # Of context lengths beyond the original one transformers asks each batch, Sluice the run.
    if name not in ("bfloat16", "sharded", "phi3_longrope"):
        compare_generation(comparison, sluice, scratch, name, model)


def said_by(model, prompt):
    """Greedily. Of Mamba-2 transformers 5.23's generate says other tokens than its own logits do, with its cache and without,
    behind prompts of some tokens; GLA's class has none."""
    if model.config.model_type not in ("mamba2", "nemotron_h", "gla"):
        with torch.no_grad():
            out = model.generate(input_ids=torch.tensor([prompt]), max_new_tokens=NEW_TOKENS, do_sample=False)
        return out[0, len(prompt):].tolist()
    said = []
    while len(said) < NEW_TOKENS and said[-1:] != [model.config.eos_token_id]:
        said.append(logits_of(model, prompt + said)[-1].argmax().item())
    return said


def compare_generation(comparison, sluice, scratch, name, model):
    """Greedy ids behind prompts of mixed lengths, each of which transformers answers alone. A text may part where the two
    likeliest tokens are as likely in float32."""
    prompts = [document[:length] for document, length in
               zip(program.zipf_documents([64] * 6, SHAPE["vocab"], seed=9), (1, 5, 17, 33, 48, 64))]
    (scratch / "prompts.jsonl").write_text("".join(json.dumps({"ids": prompt}) + "\n" for prompt in prompts))
    program.run(sluice, "generate", "--model", scratch / name, "--prompts", scratch / "prompts.jsonl", "--out",
                scratch / "said.jsonl", "--tokens", NEW_TOKENS, "--threads", 1)
    said = [json.loads(line)["ids"] for line in (scratch / "said.jsonl").read_text().splitlines()]
    for prompt, ours in zip(prompts, said, strict=True):
        theirs = said_by(model, prompt)
        if theirs and theirs[-1] == model.config.eos_token_id:
            theirs.pop()
        for place, (own, other) in enumerate(zip(ours, theirs)):
            if own == other:
                continue
            two = logits_of(model, prompt + theirs[:place])[-1][[own, other]]
            comparison.within(f"{name}: likeliest tokens that differ", [(two[1] - two[0]).abs().item() / two.abs().max().item()],
                              1e-5)
            break
        else:
            comparison.equal(f"{name}: ids behind {len(prompt)} tokens", ours, theirs)


def make_companions(folder):
    """What a model has beside its weights: a tokenizer with a chat template, settings of generation, token ids."""
    words = {word: index for index, word in enumerate(["<unk>", "<s>", "</s>", "<turn>", "one", "two", "three"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    fast.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    fast.save_pretrained(folder)
    model = reference.random_model(reference.model_config(**SHAPE), seed=5, scale=8)
    model.config.bos_token_id, model.config.eos_token_id = 1, 2
    model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=[2, 3], do_sample=True, temperature=0.6)
    model.save_pretrained(folder)


def compare_companions(comparison, sluice, scratch):
    """transformers loads the exported folder as it loaded the imported one."""
    original, exported = scratch / "original", scratch / "exported"
    make_companions(original)
    program.run(sluice, "import", original, "--out", scratch / "imported")
    program.run(sluice, "export", scratch / "imported", "--out", exported)

    def loaded(folder):
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder)
        chat = [{"role": "user", "content": "one two"}]
        return {"ids": tokenizer("one three nothing")["input_ids"],
                "special tokens": tokenizer.special_tokens_map,
                "chat": tokenizer.apply_chat_template(chat, tokenize=False),
                "generation": GenerationConfig.from_pretrained(folder).to_dict(),
                "config": model.config.to_diff_dict()}
    ours, theirs = loaded(exported), loaded(original)
    for what, value in theirs.items():
        comparison.equal(f"companions: {what}", ours[what], value)


def compare_mxfp4(comparison, sluice, scratch):
    """gpt-oss' experts as they are published, by transformers' own unpacking."""
    original, packed = scratch / "original", scratch / "packed"
    model = reference.random_model(reference.model_config(**{**SHAPE, **CASES["gpt_oss"], "ffn_hidden": 96}), seed=5, scale=8)
    values, generator = {}, torch.Generator().manual_seed(3)
    state = model.state_dict()
    for name in list(state):
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            values[name] = state[name]
            continue
        experts, inputs, outputs = state[name].shape
        blocks = torch.randint(256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8, generator=generator)
        scales = torch.randint(118, 128, (experts, outputs, inputs // 32), dtype=torch.uint8, generator=generator)
        values |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        state[name] = convert_moe_packed_tensors(blocks, scales).float()
    model.load_state_dict(state)
    model.save_pretrained(original)
    packed.mkdir()
    config = json.loads((original / "config.json").read_text())
    (packed / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "mxfp4"}}))
    save_file({name: value.contiguous() for name, value in values.items() if "inv_freq" not in name},
              packed / "model.safetensors", {"format": "pt"})
    program.run(sluice, "import", packed, "--out", scratch / "imported")
    program.run(sluice, "export", scratch / "imported", "--out", scratch / "exported", "--dtype", "float32")
    compare_tensors(comparison, "mxfp4", tensors(scratch / "exported"), tensors(original))


def main():
    comparison = program.Comparison()
    for compare_all in () if sys.argv[2:] else (compare_companions, compare_mxfp4):
        with tempfile.TemporaryDirectory() as scratch:
            compare_all(comparison, sys.argv[1], Path(scratch))
    for name in sys.argv[2:] or CASES:
        with tempfile.TemporaryDirectory() as scratch:
            compare(comparison, sys.argv[1], Path(scratch), name)
    comparison.finish()


if __name__ == "__main__":
    main()
