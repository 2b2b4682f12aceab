#!/usr/bin/env python3
"""What a model learns with gradients and parameters that travel in fewer bits, beside the same as they are: a table in Markdown.

    bench/wire_losses.py [--steps N] [--folder DIRECTORY]

A model of 20M parameters trains on the quick start's corpus (`make corpora/stdlib/corpus.idx`), two replicas on two ranks that
count as two nodes, so that each gradient's sum and each parameter crosses "between nodes". Of two seeds, which are of the weights
and of the order of the data. Runs lie in DIRECTORY and go on where they were interrupted. No times are told: other things may run.
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
layers = 12
hidden = 384
heads = 6
kv_heads = 6
ffn_hidden = 1024
vocab = 2048
tie_embeddings = true
[data]
train = [["corpora/stdlib/corpus", 1.0]]
validation_fraction = 0.005
context_length = 256
overflow = "truncate"
tokens_per_step = {tokens}
seed = {seed}
[train]
steps = {steps}
threads = 1
eval_every = {steps}
[optimizer]
lr = 1e-3
min_lr = 1e-4
warmup_steps = 100
decay = "cosine"
[parallel]
strategies = ["2x<1,1,1>"]
gpus_per_node = 1
calibration = "analytic"
[memory]
device_gib = 4.0
[checkpoint]
every = 250
keep = 1
[log]
dir = "{run}"
tensorboard = false
"""
CODECS = {"as they are": (), "push 8 and 4 bits": ("--set", "link.push=['int8', 'int4']"),
          "… and pull 4-bit differences": ("--set", "link.push=['int8', 'int4']", "--set", "link.pull=int4-difference")}
SEEDS = (1, 2)
WINDOW = 100  # steps whose losses are averaged


def trained(name, arguments, seed, options):
    """The losses of a run's steps, and its validation loss."""
    run = options.folder / f"{name.replace(' ', '-').replace('…-', '')}-{seed}"
    config = run.with_suffix(".toml")
    config.write_text(CONFIG.format(run=run, seed=seed, steps=options.steps, tokens=options.tokens))
    command = [ROOT / "build" / "sluice", "train", "--config", config, "--nproc", "2", "--resume", "auto", *arguments]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                   env={**os.environ, "OMP_NUM_THREADS": "1"})
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = {line["step"]: line["loss"] for line in lines if "loss" in line}
    return [losses[step] for step in sorted(losses)], [line["validation_loss"] for line in lines if "validation_loss" in line][-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=512, help="of a step")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build" / "wire_losses")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    ends = [end for end in (200, 500, 1000, 1500, 2000) if end <= options.steps] or [options.steps]
    print(f"{options.steps} steps of {options.tokens} tokens; means of {WINDOW} steps' losses up to the step.\n")
    print("| what travels | seed |" + "".join(f" {end} |" for end in ends) + " validation |")
    print("|---|---:|" + "---:|" * (len(ends) + 1))
    last = {}
    for name, arguments in CODECS.items():
        for seed in SEEDS:
            losses, validation = trained(name, arguments, seed, options)
            means = [statistics.mean(losses[max(0, end - WINDOW):end]) for end in ends]
            last.setdefault(name, []).append(validation)
            print(f"| {name} | {seed} |" + "".join(f" {mean:.3f} |" for mean in means) + f" {validation:.4f} |", flush=True)
    wide = last["as they are"]
    print(f"\nOf seeds the validation losses differ by {abs(wide[0] - wide[1]):.4f} as they are; of the mean over seeds, "
          + "; ".join(f"{name} {statistics.mean(values) - statistics.mean(wide):+.4f}" for name, values in last.items()
                      if name != "as they are") + ".")


if __name__ == "__main__":
    sys.exit(main())
