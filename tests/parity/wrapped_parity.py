"""Language models inside multimodal ones beside transformers and PEFT: twenty steps whole and by LoRA, and what is exported:
transformers loads all of it, and what is not the language model's is as it was.

    python tests/parity/wrapped_parity.py build/sluice [CASE…]
"""

import sys
import tempfile
from pathlib import Path

import peft
import torch
from safetensors.torch import load_file

import program
import reference
from make_fixtures import CASES
from train_parity import OPTIMIZER, settings

STEPS = 20
FIGURES = dict(layers=3, hidden=32, heads=4, ffn_hidden=56, vocab=192, positions=256)
LENGTHS = [7, 128, 31, 2, 90, 100, 55, 64, 18, 33]
LORA = {"rank": 4, "alpha": 8.0, "targets": ["q_proj", "v_proj", "o_proj"]}
# Of three layers of tiny models with experts, where a token stands between two of them, losses part: see RoutingMargin.
WHOLE = [name for name in CASES if name.startswith("whole_")]


def configuration(scratch, **sections):
    told = settings(scratch, scratch / "model", ["<1,1,1>"], OPTIMIZER) | {"checkpoint": {"every": STEPS}}
    told = {name: told.get(name, {}) | sections.get(name, {}) for name in told.keys() | sections.keys()}
    return program.write_config(scratch / "run.toml", told)


def logits_of(model):
    ids = torch.arange(100)[None] * 7 % FIGURES["vocab"]
    images = {"token_type_ids": torch.zeros_like(ids)} if model.config.model_type == "gemma3" else {}
    with torch.no_grad():
        return model.eval()(input_ids=ids, **images).logits


def compare_folder(comparison, where, scratch, out, expected):
    """That transformers loads the folder whole, computes what was trained, and finds all else as it was."""
    config = reference.AutoConfig.from_pretrained(out)
    model, loaded = reference.auto_class(config).from_pretrained(out, dtype=torch.float64, output_loading_info=True,
                                                                 **reference.implementations(config))
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        comparison.equal(f"{where}: {what}", sorted(loaded[what]), [])
    logits = logits_of(model)
    comparison.within(f"{where}: logits", [float((logits - expected).abs().max() / expected.abs().max())], 1e-4)
    before, after = (load_file(folder / "model.safetensors") for folder in (scratch / "model", out))
    comparison.equal(f"{where}: tensors", sorted(after), sorted(before))
    carried = [name for name in before if "visual" in name or "vision" in name or "projector" in name]
    comparison.equal(f"{where}: carried", bool(carried) and all(torch.equal(before[name], after[name]) for name in carried), True)


def compare_whole(comparison, case, sluice, scratch, batches):
    model = reference.load_model(scratch / "model", torch.float64)
    with reference.RoutingMargin(model) as margin:
        losses, norms = reference.train(model, batches, OPTIMIZER)
    allowed = 1e-6 if margin.least > 1e-5 else 1e-5
    lines = program.train(sluice, configuration(scratch), scratch / "run")
    comparison.close(f"{case}: loss", [line["loss"] for line in lines], losses, allowed)
    comparison.close(f"{case}: gradient norm", [line["grad_norm"] for line in lines], norms, 5e-4)
    program.run(sluice, "export", scratch / "run", "--out", scratch / "out")
    compare_folder(comparison, case, scratch, scratch / "out", logits_of(model))


def compare_lora(comparison, case, sluice, scratch, batches):
    still = configuration(scratch, lora=LORA, train={"steps": 1}, checkpoint={"every": 1},
                          optimizer={"lr": 0.0, "min_lr": 0.0, "warmup_steps": 0})
    program.train(sluice, still, scratch / "run")
    program.run(sluice, "export", scratch / "run", "--out", scratch / "adapter", "--adapters")
    base = reference.load_model(scratch / "model", torch.float64)
    model = peft.PeftModel.from_pretrained(base, scratch / "adapter", is_trainable=True).double()
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    comparison.equal(f"{case}: PEFT has all adapters", len(trained), len(load_file(scratch / "adapter/adapter_model.safetensors")))
    losses, norms = reference.train(model, batches, OPTIMIZER)
    lines = program.train(sluice, configuration(scratch, lora=LORA), scratch / "run")
    comparison.close(f"{case}, LoRA: loss", [line["loss"] for line in lines], losses, 1e-5)
    comparison.close(f"{case}, LoRA: gradient norm", [line["grad_norm"] for line in lines], norms, 5e-4)
    program.run(sluice, "export", scratch / "run", "--out", scratch / "merged")
    compare_folder(comparison, f"{case}, LoRA", scratch, scratch / "merged", logits_of(model.merge_and_unload()))


def main():
    comparison = program.Comparison()
    for case in sys.argv[2:] or WHOLE:
        with tempfile.TemporaryDirectory() as directory:
            scratch = Path(directory)
            documents = program.zipf_documents(LENGTHS * 2, FIGURES["vocab"], seed=2)
            program.write_corpus(scratch / "corpus", documents)
            config = reference.model_config(**{**FIGURES, **CASES[case]})
            reference.random_model(config, seed=1).save_pretrained(scratch / "model")
            told = configuration(scratch)
            batches = [program.batch(sys.argv[1], told, step, documents) for step in range(STEPS)]
            compare_whole(comparison, case, sys.argv[1], scratch, batches)
            compare_lora(comparison, case, sys.argv[1], scratch, batches)
            print(f"{case}: {len(comparison.faults)} faults so far", flush=True)
    comparison.finish()


if __name__ == "__main__":
    main()
