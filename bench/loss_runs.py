"""Runs that differ in one setting and in their seed, and what they learn beside each other: tables in Markdown.

A run lies in a folder of its own and goes on where it was interrupted. No times are told: other things may run.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEEDS = (1, 2)  # of the weights and of the order of the data
REST = """
[train]
steps = {steps}
threads = 1
eval_every = {steps}
[optimizer]
lr = 1e-3
min_lr = 1e-4
warmup_steps = {warmup}
decay = "cosine"
[checkpoint]
every = {every}
keep = 1
[log]
dir = "{run}"
tensorboard = false
"""


def config_of_products(layers, hidden, heads, ffn_hidden, context_length):
    """The configuration of a model whose layers all round their products, on one rank; {tokens} and {seed} are left open."""
    return f"""
[model]
layers = {layers}
hidden = {hidden}
heads = {heads}
kv_heads = {heads}
ffn_hidden = {ffn_hidden}
vocab = 2048
tie_embeddings = true
[data]
train = [["corpora/stdlib/corpus", 1.0]]
validation_fraction = 0.005
context_length = {context_length}
overflow = "truncate"
tokens_per_step = {{tokens}}
seed = {{seed}}
[parallel]
strategies = ["1x<1,1,1>"]
calibration = "analytic"
low_precision_layers = "all"
[memory]
device_gib = 4.0
"""


@dataclasses.dataclass
class Runs:
    config: str        # what of a run's configuration is not in REST; {seed} and {tokens} stand for these
    variants: dict     # by name, "train"'s arguments; the first is what the others are held against
    window: int        # steps whose losses are averaged
    ends: tuple        # the last steps of windows that are shown
    warmup: int
    every: int         # steps between checkpoints
    ranks: int = 1


def arguments_of(description, folder, steps, tokens=512):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--tokens", type=int, default=tokens, help="of a step")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build" / folder)
    return parser.parse_args()


def trained(runs, name, seed, options):
    """The losses of a run's steps, and its validation loss."""
    run = options.folder / f"{name.replace(' ', '-')}-{seed}"
    config = run.with_suffix(".toml")
    config.write_text((runs.config + REST).format(run=run, seed=seed, steps=options.steps, tokens=options.tokens,
                                                  warmup=runs.warmup, every=runs.every))
    command = [ROOT / "build" / "sluice", "train", "--config", config, "--nproc", str(runs.ranks), "--resume", "auto",
               *runs.variants[name]]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                   env={**os.environ, "OMP_NUM_THREADS": "1"})
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = {line["step"]: line["loss"] for line in lines if "loss" in line}
    return [losses[step] for step in sorted(losses)], [line["validation_loss"] for line in lines if "validation_loss" in line][-1]


def print_table(runs, options, of_what):
    """A line a variant and seed; then how far variants are from the first, beside how far seeds are apart."""
    options.folder.mkdir(parents=True, exist_ok=True)
    ends = [end for end in runs.ends if end <= options.steps] or [options.steps]
    print(f"{options.steps} steps of {options.tokens} tokens; means of {runs.window} steps' losses up to the step.\n")
    print(f"| {of_what} | seed |" + "".join(f" {end} |" for end in ends) + " validation |")
    print("|---|---:|" + "---:|" * (len(ends) + 1))
    last = {}
    for name in runs.variants:
        for seed in SEEDS:
            losses, validation = trained(runs, name, seed, options)
            means = [statistics.mean(losses[max(0, end - runs.window):end]) for end in ends]
            last.setdefault(name, []).append(validation)
            print(f"| {name} | {seed} |" + "".join(f" {mean:.3f} |" for mean in means) + f" {validation:.4f} |", flush=True)
    first, *others = runs.variants
    spread = abs(last[first][0] - last[first][1])
    print(f"\nValidation losses of the two seeds differ by {spread:.4f} ({first}); their means are off by "
          + ", ".join(f"{statistics.mean(last[name]) - statistics.mean(last[first]):+.4f} ({name})" for name in others) + ".")
