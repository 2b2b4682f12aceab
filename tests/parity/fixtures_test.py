"""Sluice beside what transformers and torch.optim made of the models in tests/data/parity (make_fixtures.py).

    python tests/parity/fixtures_test.py build/sluice CASE
"""

import json
import shutil
import struct
import sys
import tempfile
from pathlib import Path

import program

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))

from tensor_files import read_tensors  # noqa: E402

FIXTURES = TESTS / "data" / "parity"
# Ranks, strategies, the type computed in, and how far gradient norms may be from the fixtures', which transformers made
# in FP32: that is up to 8e-5 from FP64. Sluice's FP32 comes on top, by processor more or less.
LAYOUTS = {"one rank": (1, ["<1,1,1>"], "float64", 1e-4),
           "three ranks": (3, ["<2,1,1> + <1,1,1>", "<1,3,1>"], "float32", 5e-4)}


def compare_evaluation(comparison, sluice, fixture, expected, scratch):
    losses_path, logits_path = scratch / "losses.jsonl", scratch / "logits.safetensors"
    result = json.loads(program.run(
        sluice, "eval", "--model", fixture, "--corpus", fixture / "corpus", "--context-length",
        expected["context_length"], "--threads", 1, "--losses", losses_path, "--logits", logits_path,
        "--logits-sequences", 1, "--json"))
    targets = sum(len(tokens) - 1 for tokens in expected["sequences"])
    comparison.equal("targets", result["targets"], targets)
    comparison.close("mean loss", result["loss"], sum(expected["loss_sums"]) / targets, 1e-5)
    sums = [json.loads(line)["loss_sum"] for line in losses_path.read_text().splitlines()]
    comparison.close("loss of each sequence", sums, expected["loss_sums"], 1e-5)

    tensors, metadata = read_tensors(logits_path)
    dtype, _, content = tensors["logits.0"]
    comparison.equal("type of logits", dtype, "F32")
    ours = struct.unpack(f"<{len(content) // 4}f", content)
    comparison.equal("tokens", json.loads(metadata["sequences"])[0]["tokens"], expected["sequences"][0])
    theirs = [logit for row in expected["logits"] for logit in row]
    largest = max(map(abs, theirs))
    comparison.equal("logits", len(ours), len(theirs))
    comparison.within("logits", [abs(a - b) / largest for a, b in zip(ours, theirs)], 1e-5)


def compare_training(comparison, sluice, fixture, expected, scratch):
    for name, (ranks, strategies, dtype, allowed) in LAYOUTS.items():
        config = program.write_config(scratch / "run.toml", {
            "model": {"hf": str(fixture)},
            "data": {"train": [[str(fixture / "corpus"), 1.0]], "context_length": expected["context_length"],
                     "tokens_per_step": sum(map(len, expected["sequences"]))},
            "train": {"steps": len(expected["losses"]), "threads": 1, "device": "cpu", "dtype": dtype,
                      "moe_router_bias_update_rate": 0.0},
            "optimizer": expected["optimizer"],
            "parallel": {"strategies": strategies, "select": "cycle", "calibration": "analytic"},
            "memory": {"device_gib": 1, "margin_gib": 0.125},
            "log": {"tensorboard": False},
        })
        lines = program.train(sluice, config, scratch / "run", ranks=ranks)
        comparison.close(f"{name}: loss", [line["loss"] for line in lines], expected["losses"], 1e-5)
        comparison.close(f"{name}: gradient norm", [line["grad_norm"] for line in lines], expected["grad_norms"],
                         allowed)


def train_tuned(sluice, fixture, expected, tuned, scratch, ranks=1, strategies=("<1,1,1>",), dtype="float64", **sections):
    """The lines of a run that learns adapters from a part of the fixture's tokens."""
    for suffix in ("bin", "idx"):
        shutil.copyfile(fixture / f"corpus.{suffix}", scratch / f"corpus.{suffix}")
    lengths = corpus_lengths(fixture / "corpus.idx")  # documents may be longer than what is trained of them
    masks = [mask + [1] * (length - len(mask)) for mask, length in zip(tuned["masks"], lengths, strict=True)]
    (scratch / "corpus.mask").write_bytes(bytes(sum(masks, [])))
    config = program.write_config(scratch / "run.toml", {
        "model": {"hf": str(fixture), "seed": 1},
        "data": {"train": [[str(scratch / "corpus"), 1.0]], "context_length": expected["context_length"],
                 "tokens_per_step": sum(map(len, expected["sequences"]))},
        "train": {"steps": len(tuned["losses"]), "threads": 1, "device": "cpu", "dtype": dtype},
        "lora": tuned["lora"], "optimizer": tuned["optimizer"],
        "parallel": {"strategies": list(strategies), "select": "cycle", "calibration": "analytic"},
        "memory": {"device_gib": 1, "margin_gib": 0.125},
        "log": {"tensorboard": False}, **sections,
    })
    return program.train(sluice, config, scratch / "run", ranks=ranks)


def corpus_lengths(index):
    data = Path(index).read_bytes()
    (count,) = struct.unpack_from("<Q", data, 18)
    return struct.unpack_from(f"<{count}i", data, 34)


def compare_tuning(comparison, sluice, fixture, expected, scratch):
    """With PEFT, where the fixture has what that makes of it (make_tuned.py)."""
    if not (fixture / "tuned.json").exists():
        return
    tuned = json.loads((fixture / "tuned.json").read_text())
    for name, (ranks, strategies, dtype, _) in LAYOUTS.items():
        lines = train_tuned(sluice, fixture, expected, tuned, scratch, ranks, strategies, dtype)
        comparison.close(f"{name}, tuned: loss", [line["loss"] for line in lines], tuned["losses"], 1e-5)
        comparison.close(f"{name}, tuned: gradient norm", [line["grad_norm"] for line in lines], tuned["grad_norms"], 5e-4)


def main():
    sluice, case = sys.argv[1:]
    expected = json.loads((FIXTURES / case / "expected.json").read_text())
    comparison = program.Comparison()
    with tempfile.TemporaryDirectory() as scratch:
        compare_evaluation(comparison, sluice, FIXTURES / case, expected, Path(scratch))
        compare_training(comparison, sluice, FIXTURES / case, expected, Path(scratch))
        compare_tuning(comparison, sluice, FIXTURES / case, expected, Path(scratch))
    comparison.finish()


if __name__ == "__main__":
    main()
