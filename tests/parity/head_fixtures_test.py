"""Sluice beside what transformers' classes and torch.optim made of the models in tests/data/parity_heads
(make_head_fixtures.py): logits, and losses and gradient norms of 20 steps.

    python tests/parity/head_fixtures_test.py build/sluice CASE
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import program
from fixtures_test import read_tensors
from head_cases import FIXTURES

# Ranks, strategies, the type computed in, and how far gradient norms may be apart.
LAYOUTS = {"one rank": (1, ["<1,1,1>"], "float64", 1e-4),
           "four ranks": (4, ["<1,1,4>", "<2,1,2>", "<1,2,2>", "<1,1,4,4>"], "float64", 1e-4)}


def compare_scores(comparison, sluice, fixture, expected, scratch):
    """All numbers, of tokens those with a label."""
    scores = scratch / "scores.jsonl"
    program.run(sluice, "eval", "--model", fixture, "--corpus", fixture / "corpus", "--context-length",
                expected["context_length"], "--threads", 1, "--scores", scores)
    ours = [json.loads(line)["numbers"] for line in scores.read_text().splitlines()]
    labels = [json.loads(line) for line in (fixture / "corpus.labels").read_text().splitlines()]
    comparison.equal("documents", len(ours), len(labels))
    differences = []
    for numbers, theirs, label in zip(ours, expected["logits"], labels, strict=True):
        if expected["kind"] == "tokens":
            width = len(theirs) // len(label)
            theirs = [theirs[i * width:(i + 1) * width] for i, each in enumerate(label) if each is not None]
        else:
            numbers, theirs = [numbers], [theirs]
        differences += [abs(a - b) for mine, other in zip(numbers, theirs, strict=True) for a, b in zip(mine, other, strict=True)]
    comparison.within("logits", differences, 1e-5)


def compare_training(comparison, sluice, fixture, expected, scratch):
    for name, (ranks, strategies, dtype, allowed) in LAYOUTS.items():
        config = program.write_config(scratch / "run.toml", {
            "model": {"hf": str(fixture)},
            "data": {"train": [[str(fixture / "corpus"), 1.0]], "context_length": expected["context_length"],
                     "tokens_per_step": expected["tokens"], "seed": 1},
            "head": {"kind": expected["kind"]},
            "train": {"steps": len(expected["losses"]), "threads": 1, "device": "cpu", "dtype": dtype},
            "optimizer": expected["optimizer"],
            "parallel": {"strategies": strategies, "select": "cycle", "calibration": "analytic"},
            "memory": {"device_gib": 1, "margin_gib": 0.125},
            "checkpoint": {"every": len(expected["losses"])},
            "log": {"tensorboard": False},
        })
        lines = program.train(sluice, config, scratch / "run", ranks=ranks)
        comparison.close(f"{name}: loss", [line["loss"] for line in lines], expected["losses"], 2e-5)
        comparison.close(f"{name}: gradient norm", [line["grad_norm"] for line in lines], expected["grad_norms"], allowed)


def compare_round_trip(comparison, sluice, fixture, scratch):
    """Imported and exported the tensors are the same, under the same names, and config.json says the same class."""
    program.run(sluice, "import", fixture, "--out", scratch / "imported")
    program.run(sluice, "export", scratch / "imported", "--out", scratch / "exported", "--dtype", "float32")
    theirs, ours = (read_tensors(folder / "model.safetensors")[0] for folder in (fixture, scratch / "exported"))
    comparison.equal("tensors", sorted(ours), sorted(theirs))
    for name in ours.keys() & theirs.keys():
        comparison.equal(name, ours[name] == theirs[name], True)
    configs = [json.loads((folder / "config.json").read_text()) for folder in (fixture, scratch / "exported")]
    for key in ("architectures", "id2label", "classifier_pooling"):
        comparison.equal(key, configs[1].get(key), configs[0].get(key))


def main():
    sluice, case = sys.argv[1:]
    fixture = FIXTURES / case
    expected = json.loads((fixture / "expected.json").read_text())
    expected["tokens"] = (fixture / "corpus.bin").stat().st_size // 2
    comparison = program.Comparison()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "fixture"
        shutil.copytree(fixture, folder)
        compare_scores(comparison, sluice, folder, expected, Path(scratch))
        compare_round_trip(comparison, sluice, folder, Path(scratch))
        compare_training(comparison, sluice, folder, expected, Path(scratch))
    comparison.finish()


if __name__ == "__main__":
    main()
