#!/usr/bin/env python3
"""What a model learns whose layers' products are rounded to fewer bits, beside one whose are not: a table in Markdown.

    bench/narrow_losses.py [--steps N] [--folder DIRECTORY]

A model of 4M parameters trains on the quick start's corpus (`make corpora/stdlib/corpus.idx`) on one rank, of two seeds, which are of
the weights and of the order of the data. Runs lie in DIRECTORY and go on where they were interrupted. No times are told: other things
may run.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIG = """
[model]
layers = 6
hidden = 192
heads = 6
kv_heads = 6
ffn_hidden = 512
vocab = 2048
tie_embeddings = true
[data]
train = [["corpora/stdlib/corpus", 1.0]]
validation_fraction = 0.005
context_length = 256
overflow = "truncate"
tokens_per_step = 512
seed = {seed}
[train]
steps = {steps}
threads = 1
eval_every = {steps}
[optimizer]
lr = 1e-3
min_lr = 1e-4
warmup_steps = 30
decay = "cosine"
[parallel]
strategies = ["1x<1,1,1>"]
calibration = "analytic"
narrow_products = "{format}"
narrow_layers = "all"
[memory]
device_gib = 4.0
[checkpoint]
every = 100
keep = 1
[log]
dir = "{run}"
tensorboard = false
"""
FORMATS = ("none", "bfloat16", "int8", "float8")
SEEDS = (1, 2)
WINDOW = 50  # steps whose losses are averaged


def trained(format, seed, options):
    """The losses of a run's steps, and its validation loss."""
    run = options.folder / f"{format}-{seed}"
    config = run.with_suffix(".toml")
    config.write_text(CONFIG.format(run=run, seed=seed, steps=options.steps, format=format))
    subprocess.run([ROOT / "build" / "sluice", "train", "--config", config, "--resume", "auto"], check=True, cwd=ROOT,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = {line["step"]: line["loss"] for line in lines if "loss" in line}
    return [losses[step] for step in sorted(losses)], [line["validation_loss"] for line in lines if "validation_loss" in line][-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build" / "narrow_losses")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    ends = [end for end in (100, 200, 300) if end <= options.steps] or [options.steps]
    print(f"{options.steps} steps of 512 tokens; all layers' products; means of {WINDOW} steps' losses up to the step.\n")
    print("| products | seed |" + "".join(f" {end} |" for end in ends) + " validation |")
    print("|---|---:|" + "---:|" * (len(ends) + 1))
    last = {}
    for format in FORMATS:
        for seed in SEEDS:
            losses, validation = trained(format, seed, options)
            means = [statistics.mean(losses[max(0, end - WINDOW):end]) for end in ends]
            last.setdefault(format, []).append(validation)
            print(f"| {format} | {seed} |" + "".join(f" {mean:.3f} |" for mean in means) + f" {validation:.4f} |", flush=True)
    wide = last["none"]
    print(f"\nOf seeds the validation losses differ by {abs(wide[0] - wide[1]):.4f} without rounding; of the mean over seeds, "
          + "; ".join(f"{format} {statistics.mean(values) - statistics.mean(wide):+.4f}" for format, values in last.items()
                      if format != "none") + ".")


if __name__ == "__main__":
    sys.exit(main())
