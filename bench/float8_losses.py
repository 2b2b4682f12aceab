#!/usr/bin/env python3
"""What a model learns whose layers multiply 8-bit floats, beside one whose layers multiply bfloat16: a table in Markdown.

    bench/float8_losses.py [--steps N] [--folder DIRECTORY]

A model of 0.4M parameters trains on the quick start's corpus (`make corpora/stdlib/corpus.idx`) on one rank.
"""

import statistics
import sys

from loss_runs import SEEDS, Runs, arguments_of, config_of_products, trained

CONFIG = config_of_products(layers=2, hidden=96, heads=3, ffn_hidden=256, context_length=128)
FORMATS = {format: ("--set", f"train.gemm_dtype={format}") for format in ("bfloat16", "float8")}
WINDOW = 100  # steps


def main():
    options = arguments_of(__doc__, "float8_losses", steps=2000, tokens=128)
    runs = Runs(CONFIG, FORMATS, window=WINDOW, ends=(), warmup=100, every=500)
    options.folder.mkdir(parents=True, exist_ok=True)
    ends = [end for end in (500, 1000, 1500) if end < options.steps] + [options.steps]
    print(f"{options.steps} steps of {options.tokens} tokens; means of the losses of {WINDOW} steps up to the step, "
          "with bfloat16 and float8, and their difference.\n")
    print("| seed |" + "".join(f" {end} |" for end in ends) + " validation |")
    print("|---:|" + "---:|" * (len(ends) + 1))
    last = []
    for seed in SEEDS:
        (of_wide, wide), (of_narrow, narrow) = (trained(runs, name, seed, options) for name in FORMATS)
        pairs = [tuple(statistics.mean(losses[max(0, end - WINDOW):end]) for losses in (of_wide, of_narrow)) for end in ends]
        last.append(pairs[-1])
        print(f"| {seed} |" + "".join(f" {a:.4f}, {b:.4f}: {b - a:+.4f} |" for a, b in [*pairs, (wide, narrow)]), flush=True)
    differences = [b - a for a, b in last]
    spread = abs(last[0][0] - last[1][0])
    print(f"\nOver the last {WINDOW} steps float8's mean loss is off by "
          + " and ".join(f"{difference:+.4f}" for difference in differences)
          + f"; two seeds in bfloat16 differ by {spread:.4f}.")


if __name__ == "__main__":
    sys.exit(main())
