"""LoRA on experts and latent matrices beside PEFT: files that PEFT wrote and ours have the same names and shapes, training
gives the same losses and adapters, and PEFT's model with our adapters gives the logits of the merged export.

    python tests/parity/experts_lora_parity.py build/sluice [CASE…]
"""

import json
import sys
import tempfile
from pathlib import Path

import peft
import torch
import transformers
from safetensors.torch import load_file

import program
import reference
from make_fixtures import CASES, SHAPE
from train_parity import settings

STEPS = 8
OPTIMIZER = dict(lr=2e-3, betas=[0.9, 0.95], eps=1e-8, weight_decay=0.0, clip=1.0, warmup_steps=2, decay="cosine", min_lr=5e-4)
LENGTHS = [7, 96, 31, 2, 90, 55, 80, 18, 64, 3, 77, 12, 44, 60, 9, 50, 27, 65]
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
ATTENTION = ["q_proj", "v_proj", "o_proj"]
LATENT = ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"]
# Modules and experts' parameters that are adapted. DeepSeek-V3's gate_proj and down_proj are of its first layer's MLP and of
# shared experts: PEFT has to be told them as parameters, or it takes them for experts.
TARGETS = {"qwen3_moe": (ATTENTION, EXPERTS), "mixtral": (ATTENTION, EXPERTS[:1]), "gpt_oss": (ATTENTION, EXPERTS),
           "deepseek_v3": (LATENT + ["gate_proj", "down_proj"], EXPERTS),
           "qwen2_moe": (["q_proj", "up_proj", "down_proj"], EXPERTS[1:]), "deepseek_v2": (LATENT + ["up_proj"], [])}
RANK, ALPHA = 4, 12.0
LAYOUTS = {"one rank": (1, ["<1,1,1>"]), "four ranks": (4, ["<2,2,1>", "<1,1,4,4,2>", "<2,1,2>"])}


def model_of(case, folder):
    config = reference.model_config(**(SHAPE | CASES[case]))
    reference.save(reference.random_model(config, seed=5), folder)
    return folder


def config_of(scratch, model_folder, targets, ranks, strategies):
    told = settings(scratch, model_folder, strategies, OPTIMIZER)
    told |= {"lora": {"rank": RANK, "alpha": ALPHA, "targets": targets},
             "checkpoint": {"every": 1, "async": False, "keep": STEPS + 1}}
    told["data"] |= {"context_length": SHAPE["positions"], "tokens_per_step": 512}
    told["train"] |= {"steps": STEPS}
    return program.write_config(scratch / "run.toml", told)


def peft_config(case, adapter_folder):
    """What a user of PEFT writes for the same targets."""
    modules, experts = TARGETS[case]
    ours = json.loads((adapter_folder / "adapter_config.json").read_text())
    return peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=ours["target_modules"],
                           target_parameters=ours.get("target_parameters"), lora_dropout=0.0)


def wrapped(model_folder, adapter):
    model = peft.PeftModel.from_pretrained(reference.load_model(model_folder, torch.float64), adapter, is_trainable=True,
                                           autocast_adapter_dtype=False)
    trained = {name.replace(".default", ""): parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    return model, trained


def train_peft(model, trained, batches):
    adam = torch.optim.AdamW(trained.values(), lr=OPTIMIZER["lr"], betas=tuple(OPTIMIZER["betas"]), eps=OPTIMIZER["eps"],
                             weight_decay=0.0)
    for step, batch in enumerate(batches):
        adam.zero_grad()
        targets = sum(len(tokens) - 1 for tokens in batch)
        loss = sum(reference.token_losses(model, tokens).sum() for tokens in batch if len(tokens) > 1) / targets
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained.values(), OPTIMIZER["clip"])
        for group in adam.param_groups:
            group["lr"] = reference.learning_rate(OPTIMIZER, step, len(batches))
        adam.step()
        yield loss.item(), {name: parameter.detach().clone() for name, parameter in trained.items()}


def logits(model):
    ids = torch.arange(60)[None] * 7 % SHAPE["vocab"]
    with torch.no_grad():
        return model.eval()(input_ids=ids, use_cache=False).logits.double()


def compare_files(comparison, case, model_folder, ours, scratch):
    """PEFT writes the same tensors for the same targets, and takes all of ours."""
    fresh = peft.get_peft_model(reference.load_model(model_folder, torch.float32), peft_config(case, ours))
    fresh.save_pretrained(scratch / "theirs")
    shapes = lambda folder: {name: tuple(value.shape) for name, value in load_file(folder / "adapter_model.safetensors").items()}
    comparison.equal(f"{case}: files", shapes(ours), shapes(scratch / "theirs"))


def compare(comparison, sluice, scratch, case):
    modules, experts = TARGETS[case]
    model_folder = model_of(case, scratch / "model")
    documents = program.zipf_documents(LENGTHS, SHAPE["vocab"], seed=3)
    program.write_corpus(scratch / "corpus", documents)
    for layout, (ranks, strategies) in LAYOUTS.items():
        where = f"{case}, {layout}"
        config = config_of(scratch, model_folder, modules + experts, ranks, strategies)
        batches = [program.batch(sluice, config, step, documents) for step in range(STEPS)]
        lines = program.train(sluice, config, scratch / "run", "--nproc", ranks)
        out = Path(tempfile.mkdtemp(dir=scratch))
        adapter = lambda step: out / f"adapter-{step}"
        for step in (1, STEPS):
            program.run(sluice, "export", scratch / f"run/checkpoints/step-{step}", "--out", adapter(step), "--adapters")
        if layout == "one rank":
            compare_files(comparison, case, model_folder, adapter(1), scratch)
        model, trained = wrapped(model_folder, adapter(1))
        with torch.no_grad():  # as of before the first step: b is zero, a has barely moved
            for name, value in load_file(first_adapters(sluice, scratch, config) / "adapter_model.safetensors").items():
                trained[name].copy_(value)
        theirs = list(train_peft(model, trained, batches))
        comparison.close(f"{where}: loss", [line["loss"] for line in lines], [loss for loss, _ in theirs], 1e-5)
        ours = load_file(adapter(STEPS) / "adapter_model.safetensors")
        comparison.equal(f"{where}: adapters", sorted(ours), sorted(theirs[-1][1]))
        apart = [float((ours[name] - value).abs().max() / value.abs().max()) for name, value in theirs[-1][1].items()]
        comparison.within(f"{where}: adapters", apart, 1e-2)
        program.run(sluice, "export", scratch / f"run/checkpoints/step-{STEPS}", "--out", out / "merged")
        merged = logits(reference.load_model(out / "merged", torch.float64))
        loaded = logits(wrapped(model_folder, adapter(STEPS))[0])
        comparison.within(f"{where}: logits of PEFT with our adapters", [float((merged - loaded).abs().max() / merged.abs().max())], 1e-5)
        base = logits(reference.load_model(model_folder, torch.float64))
        assert float((merged - base).abs().max()) > 1e-3, "the adapters add nothing"


def first_adapters(sluice, scratch, config):
    """Those of a step that moves nothing."""
    out = Path(tempfile.mkdtemp(dir=scratch)) / "adapter"
    run = scratch / "still"
    program.train(sluice, config, run, "--set", "optimizer.lr=0.0", "--set", "optimizer.min_lr=0.0", "--set", "optimizer.warmup_steps=0",
                  "--set", "train.steps=1", "--set", 'parallel.strategies=["<1,1,1>"]')
    program.run(sluice, "export", run, "--out", out, "--adapters")
    return out


def main():
    transformers.utils.logging.set_verbosity_error()
    comparison = program.Comparison()
    for case in sys.argv[2:] or TARGETS:
        with tempfile.TemporaryDirectory() as directory:
            compare(comparison, sys.argv[1], Path(directory), case)
    comparison.finish()


if __name__ == "__main__":
    main()
