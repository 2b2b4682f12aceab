"""Adapters that PEFT wrote, several beside one model, beside PEFT: greedy ids and their log-probabilities. The adapters have
rsLoRA's factor, ranks and alphas of their own by pattern, and experts' parameters.

    python tests/parity/adapters_parity.py build/sluice [CASE…]
"""

import json
import sys
import tempfile
from pathlib import Path

import peft
import torch
import transformers

import program
import reference
from make_fixtures import CASES, SHAPE

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
PATTERNS = {"rank_pattern": {"q_proj": 5, r"layers\.[01]\.self_attn\.o_proj": 2, "o_proj": 7},
            "alpha_pattern": {r"^model\.layers\.2\..*": 11, "k_proj": 3}}
# By case and adapter: what a user of PEFT writes.
ADAPTERS = {
    "gqa": {"plain": dict(r=4, lora_alpha=6, target_modules=ATTENTION + MLP),
              "stabilised": dict(r=6, lora_alpha=5, use_rslora=True, target_modules=["q_proj", "down_proj"]),
              "patterns": dict(r=3, lora_alpha=7, target_modules=ATTENTION, **PATTERNS),
              "both": dict(r=3, lora_alpha=7, use_rslora=True, target_modules=ATTENTION + MLP, **PATTERNS)},
    "qwen3_moe": {"experts": dict(r=3, lora_alpha=5, target_modules=ATTENTION, target_parameters=EXPERTS,
                                  rank_pattern={r"layers\.1\.mlp\.experts\.down_proj": 2, "experts.gate_up_proj": 4}),
                  "down": dict(r=2, lora_alpha=5, use_rslora=True, target_modules=["v_proj"], target_parameters=EXPERTS[1:],
                               alpha_pattern={"experts.down_proj": 9})},
    "gpt_oss": {"experts": dict(r=3, lora_alpha=6, target_modules=["q_proj"], target_parameters=EXPERTS)},
}
PROMPTS = [[5, 9, 2], [7], [1, 2, 3, 4, 5, 6, 7, 8], [90, 3, 60, 33]]
TOKENS = 10
LOGPROBS = 1e-6  # apart at most: what adapters add is multiplied beforehand, in FP32


def write_adapter(base, folder, told, seed):
    """PEFT's, of random values in both factors."""
    model = peft.get_peft_model(reference.load_model(base, torch.float32), peft.LoraConfig(lora_dropout=0.0, **told))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / parameter.shape[-1] ** 0.5)
    model.save_pretrained(folder)


def continued(model, prompt):
    """Greedy ids and their log-probabilities."""
    ids, logprobs = list(prompt), []
    with torch.no_grad():
        for _ in range(TOKENS):
            row = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].double().log_softmax(-1)
            ids.append(int(row.argmax()))
            logprobs.append(float(row[ids[-1]]))
    return ids[len(prompt):], logprobs


def expected(base, adapter):
    model = reference.load_model(base, torch.float64)
    if adapter is not None:
        model = peft.PeftModel.from_pretrained(model, adapter, autocast_adapter_dtype=False)
    return [continued(model.eval(), prompt) for prompt in PROMPTS]


def generated(sluice, scratch, base, folders):
    """By adapter, of one call that has all of them go through each step; "" is the model itself."""
    names = ["", *folders]
    lines = [{"ids": ids} | ({"model": name} if name else {}) for ids in PROMPTS for name in names]
    (scratch / "prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    program.run(sluice, "generate", "--model", base, "--prompts", scratch / "prompts.jsonl", "--out", scratch / "said.jsonl",
                "--tokens", TOKENS, "--dtype", "float64", "--adapter", *(f"{name}={folder}" for name, folder in folders.items()))
    said = [json.loads(line) for line in (scratch / "said.jsonl").read_text().splitlines()]
    return {name: [(each["ids"], each["logprobs"]) for each in said[i::len(names)]] for i, name in enumerate(names)}


def compare(comparison, sluice, scratch, case):
    config = reference.model_config(**(SHAPE | CASES[case]))
    config.eos_token_id = None
    base = scratch / "model"
    reference.save(reference.random_model(config, seed=5), base)
    folders = {}
    for seed, (name, told) in enumerate(ADAPTERS[case].items()):
        folders[name] = scratch / name
        write_adapter(base, folders[name], told, seed)
    ours = generated(sluice, scratch, base, folders)
    for name, folder in {"": None, **folders}.items():
        theirs = expected(base, folder)
        where = f"{case}, {name or 'no adapter'}"
        comparison.equal(f"{where}: ids", [ids for ids, _ in ours[name]], [ids for ids, _ in theirs])
        apart = [abs(a - b) for (_, mine), (_, other) in zip(ours[name], theirs) for a, b in zip(mine, other)]
        comparison.within(f"{where}: log-probabilities", apart, LOGPROBS)


def main():
    transformers.utils.logging.set_verbosity_error()
    comparison = program.Comparison()
    for case in sys.argv[2:] or ADAPTERS:
        with tempfile.TemporaryDirectory() as directory:
            compare(comparison, sys.argv[1], Path(directory), case)
    comparison.finish()


if __name__ == "__main__":
    main()
