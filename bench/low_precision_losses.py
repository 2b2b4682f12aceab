#!/usr/bin/env python3
"""What a model learns whose layers' products are rounded to fewer bits, beside one whose are not: a table in Markdown.

    bench/low_precision_losses.py [--steps N] [--folder DIRECTORY]

A model of 4M parameters trains on the quick start's corpus (`make corpora/stdlib/corpus.idx`) on one rank.
"""

import sys

from loss_runs import Runs, arguments_of, print_table

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
tokens_per_step = {tokens}
seed = {seed}
[parallel]
strategies = ["1x<1,1,1>"]
calibration = "analytic"
low_precision_layers = "all"
[memory]
device_gib = 4.0
"""
FORMATS = {format: ("--set", f"train.gemm_dtype={format}") for format in ("none", "bfloat16", "int8", "float8")}


def main():
    options = arguments_of(__doc__, "low_precision_losses", steps=300)
    print_table(Runs(CONFIG, FORMATS, window=50, ends=(100, 200, 300), warmup=30, every=100), options, "products")


if __name__ == "__main__":
    sys.exit(main())
