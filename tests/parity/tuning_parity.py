"""Models of which a part is trained, or adapters, beside torch.optim's parameter groups and PEFT: twenty steps on one rank
and under strategies that change on four, and what is exported.

    python tests/parity/tuning_parity.py build/sluice
"""

import sys
import tempfile
from fnmatch import fnmatch
from pathlib import Path

import peft
import torch

import program
import reference
from train_parity import LAYOUTS, LENGTHS, OPTIMIZER, SHAPE, STEPS, settings

FREEZE = ["model.embed_tokens.weight", "model.layers.[01].self_attn.*", "model.layers.2.mlp.down_proj.weight"]
GROUPS = [{"parameters": ["*norm.weight"], "lr": 1e-3}, {"parameters": ["lm_head.*"], "lr": 2e-2, "weight_decay": 0.3}]
LORA = {"rank": 6, "alpha": 18.0, "targets": ["q_proj", "v_proj", "o_proj", "down_proj"]}


def configuration(scratch, strategies, **sections):
    told = settings(scratch, scratch / "model", strategies, OPTIMIZER) | {"checkpoint": {"every": STEPS}}
    told = {name: told.get(name, {}) | sections.get(name, {}) for name in told.keys() | sections.keys()}
    groups = told["optimizer"].pop("groups", [])
    config = program.write_config(scratch / "run.toml", told)
    config.write_text(config.read_text() + "".join(program.to_toml({"[optimizer.groups]": group}) for group in groups))
    return config


def compare_runs(comparison, sluice, scratch, case, sections, theirs):
    losses, norms, logits = theirs
    for name, (ranks, strategies) in LAYOUTS.items():
        config = configuration(scratch, strategies, **sections)
        lines = program.train(sluice, config, scratch / "run", ranks=ranks)
        where = f"{case}, {name}"
        comparison.close(f"{where}: loss", [line["loss"] for line in lines], losses, 1e-6)
        comparison.close(f"{where}: gradient norm", [line["grad_norm"] for line in lines], norms, 1e-4)
        out = Path(tempfile.mkdtemp(dir=scratch)) / "exported"
        program.run(sluice, "export", scratch / "run", "--out", out)
        comparison.within(f"{where}: logits of the export", [apart(reference.load_model(out, torch.float64), logits)], 1e-4)


def ids():
    return torch.arange(200)[None] * 7 % SHAPE["vocab"]


def logits_of(model):
    with torch.no_grad():
        return model.eval()(input_ids=ids()).logits


def apart(model, logits):
    return float((logits_of(model) - logits).abs().max() / logits.abs().max())


def frozen_and_grouped(model):
    """The model and its groups, as torch.optim takes them."""
    groups = {}
    for name, parameter in model.named_parameters():
        if any(fnmatch(name, pattern) for pattern in FREEZE):
            parameter.requires_grad_(False)
            continue
        own = next((group for group in GROUPS if any(fnmatch(name, one) for one in group["parameters"])), {})
        usual = OPTIMIZER["weight_decay"] if parameter.ndim > 1 else 0.0
        key = (own.get("lr", OPTIMIZER["lr"]) / OPTIMIZER["lr"], own.get("weight_decay", usual))
        groups.setdefault(key, []).append(parameter)
    return [{"params": own, "ratio": ratio, "weight_decay": decay} for (ratio, decay), own in groups.items()]


def compare_frozen(comparison, sluice, scratch, batches):
    model = reference.load_model(scratch / "model", torch.float64)
    losses, norms = reference.train(model, batches, OPTIMIZER, frozen_and_grouped(model))
    sections = {"train": {"freeze": FREEZE}, "optimizer": {"groups": GROUPS}}
    compare_runs(comparison, sluice, scratch, "frozen and grouped", sections, (losses, norms, logits_of(model)))


def compare_lora(comparison, sluice, scratch, batches):
    # A step that moves nothing: the adapters as they begin.
    still = configuration(scratch, ["<1,1,1>"], lora=LORA, train={"steps": 1}, checkpoint={"every": 1},
                          optimizer={"lr": 0.0, "min_lr": 0.0, "warmup_steps": 0})
    program.train(sluice, still, scratch / "run")
    program.run(sluice, "export", scratch / "run", "--out", scratch / "adapter", "--adapters")
    base = reference.load_model(scratch / "model", torch.float64)
    model = peft.PeftModel.from_pretrained(base, scratch / "adapter", is_trainable=True).double()
    for name, parameter in model.named_parameters():
        if "lora_A" in name:  # as PEFT would draw it
            bound = parameter.shape[1] ** -0.5
            comparison.equal(f"{name} is within its bound", bool((parameter.abs() <= bound).all()), True)
            deviation = float(parameter.std() / (bound / 3**0.5))
            comparison.equal(f"{name} is even within it", 0.8 < deviation < 1.2, True)
        if "lora_B" in name:
            comparison.equal(f"{name} begins at zero", float(parameter.abs().max()), 0.0)
    losses, norms = reference.train(model, batches, OPTIMIZER)
    sections = {"lora": LORA}
    compare_runs(comparison, sluice, scratch, "LoRA", sections, (losses, norms, logits_of(model.merge_and_unload())))


def main():
    comparison = program.Comparison()
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        documents = program.zipf_documents(LENGTHS * 2, SHAPE["vocab"], seed=2)
        program.write_corpus(scratch / "corpus", documents)
        reference.random_model(reference.model_config(**SHAPE), seed=1).save_pretrained(scratch / "model")
        config = configuration(scratch, ["<1,1,1>"])
        batches = [program.batch(sys.argv[1], config, step, documents) for step in range(STEPS)]
        compare_frozen(comparison, sys.argv[1], scratch, batches)
        compare_lora(comparison, sys.argv[1], scratch, batches)
    comparison.finish()


if __name__ == "__main__":
    main()
