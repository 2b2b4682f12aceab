#!/usr/bin/env python3
"""What a model learns whose layers' products are rounded to fewer bits, beside one whose are not: a table in Markdown.

    bench/low_precision_losses.py [--steps N] [--folder DIRECTORY]

A model of 4M parameters trains on the quick start's corpus (`make corpora/stdlib/corpus.idx`) on one rank.
"""

import sys

from loss_runs import Runs, arguments_of, config_of_products, print_table

CONFIG = config_of_products(layers=6, hidden=192, heads=6, ffn_hidden=512, context_length=256)
FORMATS = {format: ("--set", f"train.gemm_dtype={format}") for format in ("none", "bfloat16", "int8", "float8")}


def main():
    options = arguments_of(__doc__, "low_precision_losses", steps=300)
    print_table(Runs(CONFIG, FORMATS, window=50, ends=(100, 200, 300), warmup=30, every=100), options, "products")


if __name__ == "__main__":
    sys.exit(main())
